"""The lines of this rank to others, over which messages go: made when they are first needed, and watched while it waits.

What goes over them is in C++ (_core.Lines, _core.Exchange).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from zerohop import _core
from zerohop._world.deadline import SLICE, Deadline
from zerohop._world.ending import Ending, Mismatch, Told
from zerohop._world.history import BROADCAST, KINDS, SAME_CALLS, SEND_RECV, called
from zerohop._world.membership import who_has
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.membership import Membership

EAGER = _core.Lines.EAGER  # bytes of a block that goes along with its header
_STEP = 1.0  # seconds of waiting for a rank that has not started, between two looks

# Of a block, as its sender and its receiver have it: kind, number, root, nbytes, dtype.
Label = tuple[int, int, int, int, str]


def label_text(label: Label) -> str:
    kind, number, root, nbytes, dtype = label
    text = called(KINDS[kind], number, root, nbytes, dtype)
    return text if kind in (BROADCAST, SEND_RECV) else f"{text} for one rank"


class Lines:
    """slots: of this rank's board and of all others'."""

    def __init__(self, membership: Membership, slots: range, ending: Ending) -> None:
        self.membership = membership
        self._ending, self._history = ending, membership.history
        self.core = _core.Lines(membership.endpoint, membership.rank, slots.start, len(slots) // 2)
        self._peers: dict[int, _core.Peer] = {}
        self._inboxes: dict[int, _core.Memory] = {}
        self._turns = itertools.count()  # whom to ask next

    def connect(self, rank: int, deadline: Deadline, *, all_needed: bool) -> None:
        """At the first use. all_needed: the call is everybody's. Raises TransferTimeout, PeerLost, Told."""
        if rank in self._peers:
            return
        membership = self.membership
        while True:
            try:
                peer = membership.peer(rank, Deadline(min(_STEP, deadline.left)))
                break
            except TransferTimeout:
                self.check((), all_needed=all_needed)
                if deadline.passed:
                    raise
        inbox = membership.endpoint.empty(_core.Lines.INBOX)
        self.core.add(rank, peer, inbox)
        self._peers[rank], self._inboxes[rank] = peer, inbox
        membership.endpoint.share(_inbox_name(membership.name, rank, membership.rank), inbox)

    def meet(
        self, rank: int, deadline: Deadline, needed: Collection[int], all_needed: bool
    ) -> None:
        """Looks that rank's inbox up, until it is there. needed: as check() has it. Raises as wait_on() does."""
        membership, peer = self.membership, self._peers[rank]
        name = _inbox_name(membership.name, membership.rank, rank)
        while True:
            try:
                inbox = peer.lookup(name, deadline.slice)
                break
            except TransferTimeout:
                self.wait_on(rank, deadline, needed, all_needed)
            except Error as error:
                raise membership.named(error, rank) from None
        try:
            settings = peer.route(self._inboxes[rank], inbox).settings
        except PeerLost:
            settings = {}
        if not settings:  # it has been lost since the look-up
            raise self._lost(rank)
        self.core.meet(rank, inbox, bool(settings["integrity"]))

    def wait_on(
        self, rank: int, deadline: Deadline, needed: Collection[int], all_needed: bool
    ) -> None:
        """While that rank keeps this one waiting. Raises PeerLost, Told and Mismatch for what makes that useless, TransferTimeout."""
        if not self._peers[rank].alive:
            raise self._lost(rank)
        self.check([rank, *needed], all_needed=all_needed)
        if deadline.passed:
            raise TransferTimeout(f"{who_has([rank])} not made the matching call in time")

    def hear(self, needed: Collection[int], all_needed: bool, deadline: Deadline) -> bool:
        """Whether one of those has said something after all, when nothing has come for a while. Raises as wait_on() does."""
        self.check(needed, all_needed=all_needed)
        if any(self.core.has_news(rank) for rank in needed):
            return True
        if deadline.passed:
            raise TransferTimeout(f"{who_has(needed)} not made the matching call in time")
        return False

    def check(self, needed: Collection[int], *, all_needed: bool) -> None:
        """needed: those that have yet to say something. What one has said before it was lost still counts.

        all_needed: the call is everybody's; then one that has rung off ends it, although it may not be the next one to be heard.
        """
        while self.core.listen():
            pass
        self.membership.check_open()
        self._ending.check()
        waited_for = [rank for rank in needed if not self.core.has_news(rank)]
        lost = [rank for rank in waited_for if not self._peers[rank].alive]
        while lost and self.core.listen():
            pass
        for rank in lost:
            if not self.core.has_news(rank):
                raise self._lost(rank)
        over = [rank for rank in self.core.over() if all_needed or rank in needed]
        silent = over or [rank for rank in waited_for if rank not in lost]
        if silent:
            self._ask(silent[next(self._turns) % len(silent)])

    def mismatch(self, rank: int, its: Label, own: Label) -> Mismatch:
        """Of what has come over a line and what this rank expects there; perhaps it began with an earlier call."""
        earlier = self._history.difference(rank, self._peers[rank])
        if earlier is not None:
            return Mismatch(earlier)
        rule = SAME_CALLS
        if its[0] == own[0] == SEND_RECV:
            rule = "the array received into must have the size and dtype of the one sent"
        return Mismatch(
            f"rank {rank} has called {label_text(its)}, rank {self.membership.rank} {label_text(own)}: {rule}"
        )

    def untaken(self) -> dict[int, list[str]]:
        """What has come from which rank and no call has taken, in words; while none is under way."""
        if not self._peers or self.membership.endpoint.closed:
            return {}
        while self.core.listen():
            pass
        return {rank: list(map(label_text, found)) for rank, found in self.core.untaken().items()}

    def ring_off(self) -> None:
        with suppress(Error):
            self.core.ring_off(SLICE)

    def _ask(self, rank: int) -> None:
        """Also those who have given up before they knew of this rank, and so did not ring."""
        peer = self._peers[rank]
        try:
            cause = self._ending.told_by(peer)
            if cause is not None:
                raise Told(rank, cause)
            different = self._ending.difference(rank, peer)
        except PeerLost:
            raise self._lost(rank) from None
        if different is not None:
            raise Mismatch(different)

    def _lost(self, rank: int) -> Exception:
        """Perhaps it has said why."""
        cause = self._ending.said_by(rank)
        if cause is not None:
            return Told(rank, cause)
        return PeerLost(self.membership.lost(rank))


def _inbox_name(name: str, source: int, target: int) -> str:
    return f"collectives of {name!r}, from rank {source} to {target}"

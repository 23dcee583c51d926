"""The lines of this rank to others, which carry messages: made at the first use, and watched while it waits.

The messages are in C++ (_core.Lines, _core.Exchange).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.ending import EndedElsewhere, Ending, Mismatch
from zerohop._world.entries import Entry
from zerohop._world.history import (
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    KINDS,
    REDUCE_SCATTER,
    SAME_CALLS,
    SCATTER,
    SEND_RECV,
    called,
)
from zerohop._world.membership import who_has
from zerohop.collectives.table import CoreRow, Row, check_alike, rows_in
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.membership import Membership

EAGER = _core.Lines.EAGER  # bytes of a block that goes along with its header
_STEP = 1.0  # seconds between two checks while waiting for a rank that has not started

_IN_PARTS = (
    SCATTER,
    GATHER,
    ALL_GATHER,
    ALL_TO_ALL,
    REDUCE_SCATTER,
)  # a label has the size of one part

# The label of a block, from its sender and its receiver: kind, number, root, nbytes, dtype.
Label = tuple[int, int, int, int, str]


def label_text(label: Label) -> str:
    kind, number, root, nbytes, dtype = label
    text = called(KINDS[kind], number, root, nbytes, dtype)
    return f"{text} for one rank" if kind in _IN_PARTS else text


class Lines:
    def __init__(self, membership: Membership, ending: Ending) -> None:
        self.membership = membership
        self._ending, self._history = ending, membership.history
        slots = membership.slots
        self.core = _core.Lines(membership.endpoint, membership.rank, slots.first, slots.lines // 2)
        self._peers: dict[int, _core.Peer] = {}
        self._inboxes: dict[int, _core.Memory] = {}
        self._turns = itertools.count()  # which rank to ask next
        self._topology: _core.Topology | None = None
        self.hosts: list[int] = []  # by rank, from 0; known with the topology

    def connect(self, ranks: Iterable[int], deadline: Deadline, *, all_needed: bool) -> None:
        """Connects at the first use. all_needed: all ranks make the call. Raises TransferTimeout, PeerLost, EndedElsewhere."""
        needed = list(ranks)
        for rank in needed:
            if rank not in self._peers:
                self._connect(rank, needed, deadline, all_needed)

    def _connect(
        self, rank: int, needed: Collection[int], deadline: Deadline, all_needed: bool
    ) -> None:
        membership = self.membership
        while True:
            try:
                peer = membership.peer(rank, Deadline(min(_STEP, deadline.left)))
                break
            except TransferTimeout:
                self.check((), all_needed=all_needed)
                self._look_at(needed, deadline.by_the_way())
                if deadline.passed:
                    raise
        self._add(rank, peer)

    def _add(self, rank: int, peer: _core.Peer) -> None:
        if rank in self._peers:  # it was answered meanwhile
            return
        membership = self.membership
        inbox = membership.endpoint.empty(_core.Lines.INBOX)
        self.core.add(rank, peer, inbox, membership.slots_at(rank).first)
        self._peers[rank], self._inboxes[rank] = peer, inbox
        membership.share(_inbox_name(membership.key, rank, membership.rank), inbox)

    def _answer_callers(self) -> None:
        """Gives an inbox to ranks that have one for this rank: they may wait for it while it waits for others, as in a ring."""
        membership = self.membership
        for rank, caller in membership.callers().items():
            if rank in self._peers or rank == membership.rank or rank >= membership.size:
                continue
            with suppress(Error):
                caller.lookup(_inbox_name(membership.key, membership.rank, rank), 0.0)
                self._add(rank, membership.peer(rank, Deadline(0.0)))

    def _look_at(self, needed: Iterable[int], deadline: Deadline) -> None:
        """Raises PeerLost, EndedElsewhere if one of these ranks is lost, and has sent nothing before."""
        lost = [rank for rank in needed if not self.membership.lives(rank, deadline)]
        while lost and self.core.listen():
            pass
        for rank in lost:
            if rank not in self._peers or not self.core.has_news(rank):
                raise self._lost(rank)

    def topology(self, deadline: Deadline, *, all_needed: bool = True) -> _core.Topology:
        """Where all ranks are, from their entries. Raises like connect(), and ValueError: they have different tables."""
        if self._topology is None:
            membership = self.membership
            places: dict[str, int] = {}
            hosts = []
            for rank in range(membership.size):
                place = membership.place
                if rank != membership.rank:
                    entry = self._entry(rank, deadline, all_needed=all_needed)
                    check_alike(membership.table, entry.table, membership.rank, rank)
                    place = entry.place
                hosts.append(places.setdefault(place or f"rank {rank}", len(places)))
            self.hosts = hosts
            self._go_by(rows_in(membership.table))
        assert self._topology is not None
        return self._topology

    def _go_by(self, rows: list[CoreRow]) -> None:
        self._topology = _core.Topology(self.hosts, rows)
        self._topology.settle(self.core)

    def go_by(self, rows: Iterable[Row]) -> None:
        """Another table, from now on: for measurements. All ranks call it between two calls; they know where all are."""
        self._go_by([row.for_core() for row in rows])

    def _entry(self, rank: int, deadline: Deadline, *, all_needed: bool) -> Entry:
        while True:
            try:
                return self.membership.entry(rank, Deadline(min(_STEP, deadline.left)))
            except TransferTimeout:
                self.check((), all_needed=all_needed)
                if deadline.passed:
                    raise

    def meet(
        self, rank: int, deadline: Deadline, needed: Collection[int], all_needed: bool
    ) -> None:
        """Waits for that rank's inbox. needed: as in check(). Raises like wait_on()."""
        membership, peer = self.membership, self._peers[rank]
        name = _inbox_name(membership.key, membership.rank, rank)
        while True:
            try:
                inbox = peer.lookup(name, deadline.slice)
                break
            except TransferTimeout:
                self.wait_on(rank, deadline, needed, all_needed)
            except Error as error:
                raise membership.named(error, rank) from None
        try:
            route = peer.route(self._inboxes[rank], inbox)
        except PeerLost:
            route = None
        if route is None or not route.settings:  # it was lost after the look-up
            raise self._lost(rank)
        self.core.meet(rank, inbox, bool(route.settings["integrity"]), route.kind == "p2p")

    def wait_on(
        self, rank: int, deadline: Deadline, needed: Collection[int], all_needed: bool
    ) -> None:
        """Called while this rank waits for that one. Raises PeerLost, EndedElsewhere or Mismatch if the wait is in vain; TransferTimeout."""
        if not self.membership.seems_well(rank):
            raise self._lost(rank)
        self.check([rank, *needed], all_needed=all_needed)
        if self.core.has_news(rank):
            self._ask(rank)  # what it sent may be for another call than this one
        if deadline.passed:
            raise TransferTimeout(f"{who_has([rank])} not made the matching call in time")

    def hear(self, needed: Collection[int], all_needed: bool, deadline: Deadline) -> bool:
        """Called now and then during a call: whether one of these ranks has sent something. Raises like wait_on()."""
        self.check(needed, all_needed=all_needed)
        has_news = any(self.core.has_news(rank) for rank in needed)
        if deadline.passed:  # what had arrived by then has been taken
            raise TransferTimeout(
                f"{who_has(needed)} not made the matching call in time"
                if needed and not has_news
                else "it takes longer than its timeout"
            )
        return has_news

    def check(self, needed: Collection[int], *, all_needed: bool) -> None:
        """needed: the ranks that have yet to send. Messages of a rank sent before it was lost still count.

        all_needed: all ranks make the call; then any rank that has hung up ends it, even if it is not needed next.
        """
        while self.core.listen():
            pass
        if not all_needed:
            self._answer_callers()
        self.membership.check_open()
        self._ending.check()
        waited_for = [rank for rank in needed if not self.core.has_news(rank)]
        lost = [rank for rank in waited_for if not self.membership.seems_well(rank)]
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
        """The mismatch between a message and what this rank expects; it may have begun with an earlier call."""
        earlier = self._history.difference(rank, self._peers[rank])
        if earlier is not None:
            return Mismatch(earlier)
        rule = SAME_CALLS
        if its[0] == own[0] == SEND_RECV:
            rule = "the array received into must have the size and dtype of the one sent"
        theirs, mine = label_text(its), label_text(own)
        text = f"rank {rank} has called {theirs}, rank {self.membership.rank} {mine}"
        if theirs == mine:  # a label has no more than the digest of the rest
            self._ending.look()  # a rank that has closed its World no longer shows its calls, but has reported the mismatch
            found = self._ending.mismatch
            if found is not None and SAME_CALLS in found.text:  # it names both calls
                return Mismatch(found.text)
            text += ", with another op= or factor=, or after calls that were not the same"
        return Mismatch(f"{text}: {rule}")

    def untaken(self) -> dict[int, list[str]]:
        """Texts of messages that no call has taken, by rank; called while no call runs."""
        if not self._peers or self.membership.closed:
            return {}
        while self.core.listen():
            pass
        return {rank: list(map(label_text, found)) for rank, found in self.core.untaken().items()}

    def ring_off(self, seconds: float) -> None:
        with suppress(Error):
            self.core.ring_off(seconds)

    def _ask(self, rank: int) -> None:
        """Also finds ranks that gave up before they knew of this one, and so did not notify it."""
        peer = self._peers[rank]
        try:
            cause = self._ending.cause_of(peer)
            if cause is not None:
                raise EndedElsewhere(rank, cause)
            different = self._ending.difference(rank, peer)
        except PeerLost:
            raise self._lost(rank) from None
        if different is not None:
            raise Mismatch(different)
        self.membership.look_at(rank)  # the next check takes what it sent before it left
        if not self.membership.seems_well(rank):
            self.core.know_over(rank)

    def _lost(self, rank: int) -> Exception:
        """The error for a lost rank, with its reason if it reported one."""
        cause = self._ending.parting_cause(rank)
        if cause is not None:
            return EndedElsewhere(rank, cause)
        return PeerLost(self.membership.lost(rank))


def _inbox_name(key: str, source: int, target: int) -> str:
    return f"collectives of {key!r}, from rank {source} to {target}"

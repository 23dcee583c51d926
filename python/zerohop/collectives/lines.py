"""The lines of this rank to others, each made when it is first needed, and waits for what comes over them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection
from typing import TYPE_CHECKING

from zerohop import _core
from zerohop.bound import Bound
from zerohop.collectives.deadline import SLICE, Deadline
from zerohop.collectives.header import Label
from zerohop.collectives.line import CELL, Line, Slots
from zerohop.collectives.outbox import Outbox
from zerohop.ending import Ending, Mismatch, Told
from zerohop.errors import PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop.roster import Roster

__all__ = ["Lines"]

_STEP = 1.0  # seconds of waiting for a rank that has not started, between two looks


class Lines:
    """slots: of this rank's board and of all others'."""

    def __init__(self, roster: Roster, slots: range, ending: Ending) -> None:
        self.roster, self._slots = roster, Slots(slots)
        self._ending, self._history = ending, roster.history
        self._made: dict[int, Line] = {}
        self._outbox: Outbox | None = None
        self._turns = itertools.count()  # whom to ask next
        self._needed: Collection[int] = ()
        self._all_needed = False
        self._heard: set[int] = set()  # from whom something has come that hear() has not told
        self._over: dict[int, Line] = {}  # that have rung off

    def begin(self, needed: Collection[int], all_needed: bool) -> None:
        """For one exchange: the ranks from which it has yet to hear, and whether the call is everybody's.

        Then one that has rung off ends it, although it may not be the next one to be heard.
        """
        self._needed, self._all_needed = needed, all_needed

    def to(self, rank: int, deadline: Deadline) -> Line:
        """Connects at the first use. Raises TransferTimeout, PeerLost, Told."""
        line = self._made.get(rank)
        if line is None:
            roster = self.roster
            peer = self._connect(rank, deadline)
            if self._outbox is None:
                self._outbox = Outbox(roster, CELL)
            lines = weakref.proxy(self)  # no cycle: who drops a World has its inboxes freed at once

            def watch(line: Line, deadline: Deadline, seconds: float) -> None:
                lines._watch(line, deadline, seconds)

            line = Line(rank, peer, roster, self._outbox, self._slots, watch)
            self._made[rank] = line
        return line

    def hear(self, deadline: Deadline) -> int | None:
        """A rank from which something has come, any; None: nothing yet.

        Raises PeerLost and Told for what makes waiting useless, TransferTimeout.
        """
        if not self._heard and not self._rung_off():
            self._listen(deadline.slice)
        if not self._heard:
            self._check(self._waited_for())
        if self._heard:
            return self._heard.pop()
        if deadline.passed:
            raise TransferTimeout(f"{_named(self._needed)} not come in time")
        return None

    def mismatch(self, line: Line, its: Label, own: Label) -> Mismatch:
        """Of what has come over a line and what this rank expects there; perhaps it began with an earlier call."""
        earlier = self._history.difference(line.rank, line.peer)
        if earlier is not None:
            return Mismatch(earlier)
        return Mismatch(
            f"rank {line.rank} has called {its}, rank {self.roster.rank} {own}: all ranks make the same calls in the "
            "same order"
        )

    def untaken(self) -> dict[int, list[Label]]:
        """What has come from which rank and no call has taken; while none is under way."""
        if not self._made or self.roster.endpoint.closed:
            return {}
        while self._listen(0):
            pass
        labels = {rank: line.untaken() for rank, line in self._made.items()}
        return {rank: found for rank, found in labels.items() if found}

    def ring_off(self) -> None:
        deadline = Deadline(SLICE)  # one for all of them
        for line in list(self._made.values()):  # another thread may be making one
            line.ring_off(deadline)

    def _connect(self, rank: int, deadline: Deadline) -> _core.Peer:
        while True:
            try:
                return self.roster.peer(rank, Bound(min(_STEP, deadline.left)))
            except TransferTimeout:
                self._listen(0)
                self._check(self._waited_for())
                if deadline.passed:
                    raise

    def _listen(self, seconds: float) -> bool:
        """Whether a notification of a message has come."""
        slots = self._slots
        found = self.roster.find_note(slots.messages, slots.size, seconds, reset=True)
        if found is None:
            return False
        rank = found[0] - slots.messages
        line = self._made.get(rank)
        if line is None:  # it has given up; should this rank come to need it, it asks
            return True
        line.heard(found[1])
        self._heard.add(rank)
        if line.far_is_over:
            self._over[rank] = line
        return True

    def _watch(self, line: Line, deadline: Deadline, seconds: float) -> None:
        """As Line has it. What makes the call useless ends this wait, too."""
        slots = self._slots
        found = self.roster.find_note(slots.credits, slots.size, seconds, reset=True)
        if found is not None:
            rank = found[0] - slots.credits
            if rank in self._made:
                self._made[rank].has_room(found[1])
            return
        if not line.peer.alive:
            raise self._lost(line.rank)
        self._listen(0)
        self._check([line, *self._waited_for()])
        if deadline.passed:
            raise TransferTimeout(f"{_named([line.rank])} not come in time")

    def _waited_for(self) -> list[Line]:
        """Those that have yet to say something."""
        lines = [self._made[rank] for rank in self._needed if rank in self._made]
        return [line for line in lines if not line.has_news]

    def _rung_off(self) -> list[Line]:
        lines = self._over.values()
        return [line for line in lines if self._all_needed or line.rank in self._needed]

    def _check(self, waited_for: list[Line]) -> None:
        """As hear(): what a rank has said before it was lost still counts."""
        self.roster.check_open()
        self._ending.check()
        lost = [line for line in waited_for if not line.peer.alive]
        while lost and self._listen(0):
            pass
        for line in lost:
            if not line.has_news:
                raise self._lost(line.rank)
        over = self._rung_off() or [line for line in waited_for if line.far_is_over]
        silent = over or [line for line in waited_for if line not in lost]
        if silent:
            self._ask(silent[next(self._turns) % len(silent)])

    def _ask(self, line: Line) -> None:
        """Also those who have given up before they knew of this rank, and so did not ring."""
        try:
            cause = self._ending.told_by(line.peer)
            if cause is not None:
                raise Told(line.rank, cause)
            different = self._ending.difference(line.rank, line.peer)
        except PeerLost:
            raise self._lost(line.rank) from None
        if different is not None:
            raise Mismatch(different)

    def _lost(self, rank: int) -> Exception:
        """Perhaps it has said why."""
        cause = self._ending.said_by(rank)
        if cause is not None:
            return Told(rank, cause)
        return PeerLost(f"{self.roster.lost(rank)}; state() tells who is left")


def _named(waited_for: Collection[int]) -> str:
    ranks = [str(rank) for rank in waited_for]
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    shown = ", ".join(ranks[:8]) + (", ..." if len(ranks) > 8 else "")
    return f"ranks {shown} have"

"""The lines of this rank to others, each made when it is first needed, and waits for what comes over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zerohop.collectives.deadline import Deadline
from zerohop.collectives.ending import Cause, Ending
from zerohop.collectives.line import CELL, Line, Slots
from zerohop.collectives.outbox import Outbox
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop.roster import Roster

__all__ = ["Lines", "Told"]


class Told(Exception):
    """Another rank's collectives are over, for a cause that it says."""

    def __init__(self, rank: int, cause: Cause) -> None:
        super().__init__(rank, cause)
        self.rank, self.cause = rank, cause


class Lines:
    """slots: of this rank's board and of all others'."""

    def __init__(self, roster: Roster, slots: range, ending: Ending) -> None:
        self.roster, self._slots, self._ending = roster, Slots(slots), ending
        self._made: dict[int, Line] = {}
        self._outbox: Outbox | None = None
        self._turns = itertools.count()  # whom to ask next
        self._rung = False  # whether another rank has said that its collectives are over

    def to(self, rank: int, deadline: Deadline) -> Line:
        """Connects at the first use. Raises TransferTimeout, PeerLost."""
        line = self._made.get(rank)
        if line is None:
            roster = self.roster
            peer = roster.peer(rank, deadline.left)
            if self._outbox is None:
                self._outbox = Outbox(roster.endpoint, CELL)
            line = Line(
                rank,
                roster.rank,
                roster.name,
                peer,
                roster.endpoint,
                self._outbox,
                self._slots,
                self._watch,
            )
            self._made[rank] = line
        return line

    def hear(self, ranks: Iterable[int], deadline: Deadline) -> int | None:
        """A rank from which something has come, any; None: nothing yet.

        Raises PeerLost and Told for what makes waiting for these ranks useless, TransferTimeout.
        """
        lines = [self._made[rank] for rank in ranks] if self._rung else []
        rank = None
        if not any(line.far_is_over for line in lines):
            rank = self._listen(deadline.slice)
        if rank is None:
            rank = self._check([self._made[each] for each in ranks], deadline)
        return rank

    def ring_off(self) -> None:
        for line in self._made.values():
            line.ring_off()

    def _listen(self, seconds: float) -> int | None:
        slots = self._slots
        found = self.roster.find_note(slots.messages, slots.size, seconds, reset=True)
        if found is None:
            return None
        rank = found[0] - slots.messages
        line = self._made.get(rank)
        if line is None:  # it has given up; should this rank come to need it, it asks
            return None
        line.heard(found[1])
        self._rung |= line.far_is_over
        return rank

    def _watch(self, line: Line, deadline: Deadline, seconds: float) -> None:
        """As Line has it."""
        slots = self._slots
        found = self.roster.find_note(slots.credits, slots.size, seconds, reset=True)
        if found is not None:
            rank = found[0] - slots.credits
            if rank in self._made:
                self._made[rank].has_room(found[1])
        else:
            self._check([line], deadline)

    def _check(self, waited_for: list[Line], deadline: Deadline) -> int | None:
        """As hear(): what a rank has said before it was lost still counts."""
        if self.roster.endpoint.closed:
            raise Error(f"the World {self.roster.name!r} is closed")
        lost = [line.rank for line in waited_for if not line.peer.alive]
        if lost:
            rank = self._listen(0)
            if rank is None:
                raise _lost(lost[0])
            return rank
        over = [line for line in waited_for if line.far_is_over]
        self._ask(over[0] if over else waited_for[next(self._turns) % len(waited_for)])
        if deadline.passed:
            raise TransferTimeout(f"{_named(waited_for)} not come in time")
        return None

    def _ask(self, line: Line) -> None:
        """Also those who have given up before they knew of this rank, and so did not ring."""
        try:
            cause = self._ending.told_by(line.peer)
        except PeerLost:
            raise _lost(line.rank) from None
        if cause is not None:
            raise Told(line.rank, cause)


def _lost(rank: int) -> PeerLost:
    return PeerLost(f"rank {rank} is lost; state() tells who is left")


def _named(lines: list[Line]) -> str:
    ranks = [str(line.rank) for line in lines]
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    shown = ", ".join(ranks[:8]) + (", ..." if len(ranks) > 8 else "")
    return f"ranks {shown} have"

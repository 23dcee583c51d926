"""The desk at which a rank's collectives are called: their arrays in, a Turn for each in its order out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zerohop.collectives.blocks import Block, Flat, cut, cut_evenly
from zerohop.collectives.copies import Copier
from zerohop.collectives.deadline import Deadline
from zerohop.collectives.exchange import Move
from zerohop.collectives.lines import Lines
from zerohop.collectives.order import Collective, Order
from zerohop.collectives.turn import Turn
from zerohop.ending import Ending
from zerohop.errors import RouteUnavailable
from zerohop.history import NO_ROOT, Called
from zerohop.numbers import whole

if TYPE_CHECKING:
    from zerohop.roster import Roster

__all__ = ["Desk", "How"]


class How(NamedTuple):
    """What all calls have in common, as the program gave it."""

    stream: Any
    timeout: float | None
    wait: bool


class Desk:
    """slots: on every rank's board, two for each rank."""

    def __init__(self, roster: Roster, slots: range, ending: Ending) -> None:
        self._roster, self._slots = roster, slots
        self._lines, self._copier = Lines(roster, slots, ending), Copier(roster)
        self._order = Order(self._lines, ending)
        # Calls of send_recv concern two ranks: those from each, and to each, have numbers of their own.
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()

    def rank(self, rank: int, what: str = "root") -> int:
        """what: names the argument. Raises IndexError, TypeError."""
        if not 0 <= whole(what, rank) < self._roster.size:
            raise IndexError(f"{what} {rank}: ranks go from 0 to {self._roster.size - 1}")
        return whole(what, rank)

    def flat(self, array: Any, what: str, *, writable: bool = False) -> Flat:
        return Flat(self._roster.endpoint, array, what, writable=writable)

    def parts(
        self, given: Any, what: str, counts: Iterable[int] | None, *, writable: bool = False
    ) -> tuple[list[Flat], list[Block]]:
        """A list of arrays, one for each rank, or an array cut along its first axis. The arrays, and the blocks by rank."""
        size = self._roster.size
        if given is None:
            raise TypeError(
                f"{what} is None: here it must be a list of {size} arrays, one for each rank, or one array that is cut along "
                "its first axis; only where another rank is the root it may be left out"
            )
        if not isinstance(given, (list, tuple)):
            flat = self.flat(given, what, writable=writable)
            return [flat], cut_evenly(flat, size) if counts is None else cut(flat, counts, size)
        if counts is not None:
            raise ValueError(f"{what} is a list of arrays, which have their own sizes: no counts")
        if len(given) != size:
            raise ValueError(f"{what} has {len(given)} arrays for {size} ranks")
        flats = [
            self.flat(array, f"{what}[{rank}]", writable=writable)
            for rank, array in enumerate(given)
        ]
        return flats, [flat.whole() for flat in flats]

    def start(
        self,
        kind: str,
        root: int | None,
        flats: Sequence[Flat],
        how: How,
        body: Callable[[Turn], None],
        agreed: int | None = None,
    ) -> Collective:
        """body: the algorithm. agreed: bytes, where all ranks must have as many. Raises what ends it, if it is waited for."""
        self._roster.check_open()
        if not self._slots and self._roster.size > 1:
            raise RouteUnavailable(
                f"a World of {self._roster.size} ranks has not two slots left for each: use segments"
            )
        seconds = self._roster.bound(how.timeout)
        if how.stream is not None:
            self._copier.wait_for(how.stream, Deadline(seconds))

        def run(call: Called, deadline: Deadline) -> None:
            body(Turn(call, self._lines, self._copier, deadline))

        common = (NO_ROOT if root is None else root, agreed, flats[0].dtype if flats else "")
        return self._order.start(kind, common, run, flats, seconds, how.wait)

    def untaken(self) -> str:
        """As Order.untaken()."""
        return self._order.untaken()

    def sending(self, turn: Turn, to: int, block: Block) -> Move:
        """The next send_recv to that rank."""
        self._sent[to] += 1
        return turn.move(to, block, number=self._sent[to])

    def receiving(self, turn: Turn, source: int, block: Block) -> Move:
        self._received[source] += 1
        return turn.move(source, block, number=self._received[source])

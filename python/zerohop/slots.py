"""Which slots of an Endpoint's board belong to what in a World."""

from __future__ import annotations

from zerohop.barrier import Barrier

__all__ = ["BARRIER", "FIRST", "LAST", "SlotRanges"]

FIRST = 16384  # those below are the program's own, for peer.write(notify=) beside segments
LAST = 65535
BARRIER = LAST + 1 - Barrier.SLOTS  # the barrier's come last


class SlotRanges:
    """Ranges for segments. Ranks that make the same calls in the same order get the same ranges."""

    def __init__(self) -> None:
        self._taken: list[range] = []  # in order, without overlap

    def take(self, count: int) -> range:
        """The first gap that is large enough. Raises ValueError."""
        begin = FIRST
        for taken in self._taken:
            if taken.start - begin >= count:
                break
            begin = taken.stop
        if begin + count > BARRIER:
            used = sum(map(len, self._taken))
            raise ValueError(
                f"there is no range of {count} notification slots left: of {BARRIER - FIRST} the World's other "
                f"segments have {used}; close one, or take fewer notifications="
            )
        made = range(begin, begin + count)
        self._taken = sorted([*self._taken, made], key=lambda each: each.start)
        return made

    def give_back(self, made: range) -> None:
        self._taken.remove(made)

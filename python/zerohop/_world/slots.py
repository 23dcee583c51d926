"""Which slots of an Endpoint's board belong to what in a World."""

from __future__ import annotations

from zerohop._core import Barrier

__all__ = ["BARRIER", "BELL", "FIRST", "LAST", "MOST_RANKS", "SlotRanges", "collective_slots"]

FIRST = 16384  # those below are the program's own, for peer.write(notify=) beside segments
LAST = 65535
BARRIER = LAST + 1 - Barrier.SLOTS  # the barrier's come last
BELL = BARRIER + Barrier.FREE  # of LastWords

MOST_RANKS = 8192  # that have collectives, so that a third of the slots at least is the segments'


def collective_slots(size: int) -> range:
    """Two for each rank of a World, in front of the barrier's; none for so many that segments had too few."""
    return range(BARRIER - (2 * size if 1 < size <= MOST_RANKS else 0), BARRIER)


class SlotRanges:
    """Ranges for segments, below `end`. Ranks that make the same calls in the same order get the same ranges."""

    def __init__(self, end: int = BARRIER) -> None:
        self._end = end
        self._taken: list[range] = []  # in order, without overlap

    def take(self, count: int) -> range:
        """The first gap that is large enough. Raises ValueError."""
        begin = FIRST
        for taken in self._taken:
            if taken.start - begin >= count:
                break
            begin = taken.stop
        if begin + count > self._end:
            used = sum(map(len, self._taken))
            raise ValueError(
                f"there is no range of {count} notification slots left: of {self._end - FIRST} the World's other "
                f"segments have {used}; close one, or take fewer notifications="
            )
        made = range(begin, begin + count)
        self._taken = sorted([*self._taken, made], key=lambda each: each.start)
        return made

    def give_back(self, made: range) -> None:
        self._taken.remove(made)

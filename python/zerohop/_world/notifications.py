"""The notification board of a World's rank: the use of its slots, and notifications after reads."""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from zerohop import _core
from zerohop._core import Barrier
from zerohop.errors import Error

FIRST = 16384  # those below are the program's own, for peer.write(notify=)
LAST = 65535

_REST = 1.0  # seconds, more than a notification is under way

MOST_RANKS = 8192  # with collectives, so that at least a third of the slots is left for segments


class Slots(NamedTuple):
    """Those of a World on the board of one rank: of its collectives, then of its barrier.

    lines: two for each rank; none above MOST_RANKS.
    """

    first: int
    lines: int

    @classmethod
    def at_the_end(cls, size: int) -> Slots:
        """Of a World of so many ranks."""
        return cls.of(range(LAST + 1 - slots_for(size), LAST + 1))

    @classmethod
    def of(cls, taken: range) -> Slots:
        return cls(taken.start, len(taken) - Barrier.SLOTS)

    @property
    def barrier(self) -> int:
        return self.first + self.lines

    @property
    def all(self) -> range:
        return range(self.first, self.barrier + Barrier.SLOTS)

    @property
    def bell(self) -> int:
        """Of FailureReports."""
        return self.barrier + Barrier.FREE


def slots_for(size: int) -> int:
    """How many so many ranks need."""
    return (2 * size if 1 < size <= MOST_RANKS else 0) + Barrier.SLOTS


class SlotRanges:
    """Ranges below `end`: for segments from below, and for Worlds of some ranks from above.

    Ranks that make the same segments in the same order get the same ranges for them. Thread-safe.
    """

    def __init__(self, end: int = LAST + 1) -> None:
        self._end = end
        self._lock = threading.Lock()  # protects the following
        self._taken: list[range] = []  # for segments, in order, without overlap
        self._above: list[range] = []  # for Worlds of some ranks
        # Those that such Worlds have given back, the earliest first, and until when nobody gets them.
        self._resting: deque[tuple[float, range]] = deque()

    def take(self, count: int) -> range:
        """For a segment: the first gap that is large enough. Raises ValueError."""
        made = self._wait_for(lambda: self._first_gap(count))
        if made is None:
            raise ValueError(self._full(count, "close one, or use fewer notifications="))
        return made

    def _first_gap(self, count: int) -> range | None:
        end = min((each.start for each in self._used_above()), default=self._end)
        begin = FIRST
        for taken in self._taken:
            if taken.start - begin >= count:
                break
            begin = taken.stop
        if begin + count > end:
            return None
        made = range(begin, begin + count)
        self._taken = sorted([*self._taken, made], key=lambda each: each.start)
        return made

    def take_above(self, count: int) -> range:
        """For a World of some ranks: the last gap that is large enough. Raises ValueError."""
        made = self._wait_for(lambda: self._last_gap(count))
        if made is None:
            raise ValueError(self._full(count, "close one"))
        return made

    def _last_gap(self, count: int) -> range | None:
        end = self._end
        for taken in sorted(self._used_above(), key=lambda each: -each.start):
            if end - taken.stop >= count:
                break
            end = taken.start
        if end - count < (self._taken[-1].stop if self._taken else FIRST):
            return None
        made = range(end - count, end)
        self._above.append(made)
        return made

    def _used_above(self) -> list[range]:
        while self._resting and self._resting[0][0] <= time.monotonic():
            self._resting.popleft()
        return [*self._above, *(each for _, each in self._resting)]

    def _wait_for(self, gap: Callable[[], range | None]) -> range | None:
        """Waits while a range that rests may help: each does so for a short time."""
        while True:
            with self._lock:
                made = gap()
                if made is not None or not self._resting:
                    return made
                rested = self._resting[0][0]
            time.sleep(max(0.0, rested - time.monotonic()))

    def _full(self, count: int, remedy: str) -> str:
        used = sum(map(len, self._taken)), sum(map(len, self._above))
        return (
            f"there is no range of {count} notification slots left: of {self._end - FIRST} the World's segments have "
            f"{used[0]}, and the Worlds made by split() {used[1]}; {remedy}"
        )

    def give_back(self, made: range) -> None:
        with self._lock:
            if made in self._taken:
                self._taken.remove(made)
            else:
                self._above.remove(made)
                self._resting.append((time.monotonic() + _REST, made))


class Landings:
    """Notifications on the own board after reads: GASPI's read_notify.

    An RDMA read does not notify its target, and its origin only by a completion. A sleeping thread puts the value
    when the completion comes. put: puts (slot, value) on the own board.
    """

    def __init__(self, put: Callable[[int, int], object]) -> None:
        self._put = put
        self._bell = _core.Bell()
        self._tokens = itertools.count()
        self._waiting: dict[int, tuple[_core.Transfer, int, int]] = {}
        self._stop_out, self._stop_in = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="zerohop landings", daemon=True)
        self._thread.start()

    def notify(self, transfer: _core.Transfer, slot: int, value: int) -> None:
        """Puts the value once the transfer has succeeded; if it fails, wait() of its queue raises, and nothing is put."""
        token = next(self._tokens)
        self._waiting[token] = (transfer, slot, value)
        self._bell.watch(transfer, token)

    def close(self) -> None:
        """Reads that complete from now on notify nobody."""
        os.close(self._stop_in)
        self._thread.join()
        os.close(self._stop_out)

    def _serve(self) -> None:
        bell = self._bell.fileno()
        while True:
            ready, _, _ = select.select([bell, self._stop_out], [], [])
            if self._stop_out in ready:
                return
            for token in self._bell.drain():
                self._land(*self._waiting.pop(token))

    def _land(self, transfer: _core.Transfer, slot: int, value: int) -> None:
        with suppress(Error):  # the queue's wait() raises it
            transfer.wait(0)
            try:
                self._put(slot, value)
            except Error as error:
                _core.report(f"a read has landed, but its notification was not put: {error}")

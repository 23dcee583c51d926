"""The notification board of a World's rank: the use of its slots, and notifications after reads."""

from __future__ import annotations

import itertools
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from zerohop import _core
from zerohop._core import Barrier
from zerohop.errors import Error

FIRST = 16384  # those below are the program's own, for peer.write(notify=)
LAST = 65535
BARRIER = LAST + 1 - Barrier.SLOTS  # the barrier's slots come last
BELL = BARRIER + Barrier.FREE  # of FailureReports

MOST_RANKS = 8192  # with collectives, so that at least a third of the slots is left for segments


def collective_slots(size: int) -> range:
    """Two for each rank of a World, before the barrier's; none above MOST_RANKS."""
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
                f"segments have {used}; close one, or use fewer notifications="
            )
        made = range(begin, begin + count)
        self._taken = sorted([*self._taken, made], key=lambda each: each.start)
        return made

    def give_back(self, made: range) -> None:
        self._taken.remove(made)


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

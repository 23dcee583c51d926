"""The loops of `zerohop bench wait`, the same for everybody: each call of all ranks, or each half round trip, is timed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

Call = Callable[[int], object]
# Calls that return before all ranks have come: by so many calls, at most, ranks are apart.
RUNNING_AHEAD = ("exchange", "broadcast")


class Job(ABC):
    """One rank of a job. A test is the name of a method, which returns what does the call once: `number` counts the calls."""

    rank: int
    size: int

    @abstractmethod
    def barrier(self, nbytes: int) -> Call: ...

    @abstractmethod
    def exchange(self, nbytes: int) -> Call:
        """Each rank sends to the next one and receives from the one before it."""

    @abstractmethod
    def all_to_all(self, nbytes: int) -> Call: ...

    @abstractmethod
    def broadcast(self, nbytes: int) -> Call:
        """Each rank is the root in turn, so that none runs ahead."""

    @abstractmethod
    def all_gather(self, nbytes: int) -> Call: ...

    def calls(self, test: str, nbytes: int, times: int) -> Sequence[float]:
        """Seconds a call, of rank 0 alone: of RUNNING_AHEAD, the mean of as many as there are ranks."""
        call: Call = getattr(self, test)(nbytes)
        several = self.size if test in RUNNING_AHEAD else 1
        clock = time.perf_counter
        seconds = []
        self.barrier(0)(0)
        for first in range(0, times, several):
            begin = clock()
            for number in range(first, first + several):
                call(number)
            seconds.append((clock() - begin) / several)
        return seconds if self.rank == 0 else []


def ping_pong(
    first: bool, send: Callable[[], object], receive: Callable[[], object], times: int
) -> Sequence[float]:
    """Seconds of each half round trip."""
    clock = time.perf_counter
    seconds = []
    for _ in range(times):
        begin = clock()
        if first:
            send()
        receive()
        if not first:
            send()
        seconds.append((clock() - begin) / 2)
    return seconds

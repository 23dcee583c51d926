"""The measuring loops that contenders share, in Python. Each returns seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

from zerohop.bench.plan import Order
from zerohop.bench.workers import Player

LOOP_TIMEOUT_S = 60.0  # for one loop as a whole
LOOKS = 4096  # polls between two clock readings
Call = Callable[[int], object]
Waits = Callable[[Any], object]  # waits for posted transfers
WAITS = methodcaller("wait")
# All ranks of a job make these calls.
CALLS = (
    "barrier",
    "exchange",
    "all_to_all",
    "broadcast",
    "all_gather",
    "all_reduce",
    "reduce_scatter",
)
# These may return before all ranks have made them; ranks are apart by at most as many calls as there are ranks.
RUNNING_AHEAD = ("exchange", "broadcast")


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


def polled_ping_pong(
    first: bool,
    throw: Callable[[], Any],
    wait: Waits,
    memory: memoryview,
    nbytes: int,
    place: int,
    times: int,
) -> Sequence[float]:
    """Seconds of each half round trip of writes without notification, from the first `nbytes` of `memory` to `place`.

    The receiver polls the last byte, which is the round number (1 to 255, never 0). wait: waits for what `throw` posted.
    """
    last, clock = place + nbytes - 1, time.perf_counter
    seconds = []
    for number in range(1, times + 1):
        mark = 1 + number % 255
        begin = clock()
        if not first:
            poll_for(memory, last, mark)
        memory[nbytes - 1] = mark
        thrown = throw()
        if first:
            poll_for(memory, last, mark)
        wait(thrown)
        seconds.append((clock() - begin) / 2)
    memory[last] = 0
    return seconds


def poll_for(memory: memoryview, place: int, mark: int) -> None:
    looks = 0
    until = time.perf_counter() + LOOP_TIMEOUT_S
    while memory[place] != mark:
        looks += 1
        if looks % LOOKS == 0 and time.perf_counter() > until:
            raise TimeoutError(f"the write that ends in {mark} did not come")


def stream_seconds(post: Callable[[], Any], times: int, width: int, wait: Waits = WAITS) -> float:
    """From the first of `times` posts to the last completion, with `width` in flight."""
    pending: deque[Any] = deque()
    begin = time.perf_counter()
    for _ in range(times):
        if len(pending) == width:
            wait(pending.popleft())
        pending.append(post())
    for transfer in pending:
        wait(transfer)
    return time.perf_counter() - begin


def each_of(act: Callable[[], object], times: int) -> list[float]:
    clock = time.perf_counter
    seconds = []
    for _ in range(times):
        begin = clock()
        act()
        seconds.append(clock() - begin)
    return seconds


def batches(
    call: Callable[[], Any], posts: int, times: int, after: Callable[[list[Any]], object]
) -> list[float]:
    """Seconds of the call alone, in each batch; `after` gets the results of a batch."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        made = [call() for _ in range(posts)]
        seconds.append((time.perf_counter() - begin) / posts)
        after(made)
        del made  # freeing is not measured
    return seconds


def arrays_of(call: str, ranks: int, nbytes: int) -> tuple[int, int, int, int]:
    """Bytes of the arrays that a rank needs for a call: a block, another one, one for each rank, one from each rank."""
    every = ranks * nbytes
    return (
        0 if call == "all_to_all" else nbytes,
        nbytes if call == "exchange" else 0,
        every if call in ("all_to_all", "reduce_scatter") else 0,
        every if call in ("all_to_all", "all_gather") else 0,
    )


class Job(Player):
    """One rank of a job of `size`."""

    rank: int
    size: int

    def call(self, test: str, nbytes: int) -> Call:
        """A function that makes one of CALLS once; its argument is the number of the call.

        Exchange: each rank sends to the next one and receives from the one before it. Broadcast: each rank is
        the root in turn, so that no rank runs ahead. Reductions: sums of float32, all_reduce in place.
        """
        raise NotImplementedError

    def perform(self, order: Order) -> Any:
        """Rank 0 returns the seconds of each call; for RUNNING_AHEAD, means over as many calls as there are ranks.

        The first calls are not measured: the arrays are new, and the system gives them their pages then.
        """
        if order.test not in CALLS:
            return super().perform(order)
        call = self.call(order.test, order.nbytes)
        several = self.size if order.test in RUNNING_AHEAD else 1
        clock = time.perf_counter
        seconds = []
        for number in range(several):
            call(number)
        self.call("barrier", 0)(0)
        for first in range(0, order.times, several):
            begin = clock()
            for number in range(first, first + several):
                call(number)
            seconds.append((clock() - begin) / several)
        return seconds if self.rank == 0 else []

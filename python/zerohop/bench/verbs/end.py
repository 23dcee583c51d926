"""One of the two processes with queue pairs of their own, and the loops that it plays, from Python or C++."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from zerohop import _core, verbs
from zerohop.bench.loops import LOOP_TIMEOUT_S, poll_for
from zerohop.bench.peer import FigureFailed
from zerohop.bench.plan import Order, window
from zerohop.bench.turns import Found
from zerohop.bench.verbs.plan import (
    INLINE_NBYTES,
    PING_PONG,
    QUEUE_PAIRS,
    RECEIVE_DEPTH,
    SEND_DEPTH,
    TESTS,
    Test,
)
from zerohop.errors import Error
from zerohop.local import Link

LOOKS = 4096  # at a completion queue, between two looks at the clock


class End:
    """Rank 0 posts; rank 1 owns what is written and read, and receives. Both play the ping-pong."""

    def __init__(self, link: Link, device: str, arena_nbytes: int) -> None:
        self._link = link
        self._first = link.rank == 0
        self._device = verbs.Device(device)
        domain = self._device.pd()
        depth = QUEUE_PAIRS * SEND_DEPTH
        self._queue = verbs.CompletionQueue(self._device, depth)
        self._receives = verbs.CompletionQueue(self._device, QUEUE_PAIRS * RECEIVE_DEPTH)
        options = {
            "send_depth": SEND_DEPTH,
            "receive_depth": RECEIVE_DEPTH,
            "inline_bytes": INLINE_NBYTES,
        }
        self._pairs = [
            verbs.QueuePair(domain, self._queue, self._receives, **options)
            for _ in range(QUEUE_PAIRS)
        ]
        self._array = np.zeros(arena_nbytes, np.uint8)
        self._region = domain.register(self._array)
        card = [pair.address().to_bytes() for pair in self._pairs], self._region.remote
        addresses, self._remote = link.exchange(card)[1 - link.rank]
        for pair, address in zip(self._pairs, addresses, strict=True):
            pair.connect(verbs.QueuePairAddress.from_bytes(address))
        self._half = arena_nbytes // 2
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        options = self._pairs[0].options
        return {
            "device": self._device.name,
            "route": "verbs",
            "provider": self._device.provider,
            "mtu": self._device.mtu,
            "inline_bytes": options["inline_bytes"],
        }

    def close(self) -> None:
        self._region.close()

    def perform(self, order: Order) -> float | Sequence[float] | Found:
        test = TESTS[order.test]
        if test.inline and order.nbytes > self._pairs[0].options["inline_bytes"]:
            return {}
        try:
            return self._play(test, order)
        except Error as error:
            raise FigureFailed(f"{type(error).__name__}: {error}") from None

    def _play(self, test: Test, order: Order) -> float | Sequence[float]:
        latency = order.test.endswith("latency")
        if order.test == PING_PONG:
            self._link.exchange(None)
            return self._ping_pong(order)
        if self._first:
            self._link.exchange(None)  # what it sends into is posted
            return self._latency(test, order) if latency else self._stream(test, order)
        seconds = self._receive(order) if test.operation == "send" else self._link.exchange(None)
        return () if latency else seconds if isinstance(seconds, float) else 0.0

    def _request(self, test: Test, nbytes: int) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of post_send. Writes go to the other side's second half, which nobody reads."""
        arguments: dict[str, Any] = {}
        if test.inline:
            arguments["inline"] = True
        if test.operation != "send":
            address, key = self._remote
            arguments["remote"] = address + (self._half if test.operation == "write" else 0), key
        if test.operation == "fetch_add":
            arguments["add"] = 1
        here = 0 if test.operation in ("write", "send") else self._half
        return [test.operation, self._region[here : here + nbytes]], arguments

    def _latency(self, test: Test, order: Order) -> Sequence[float]:
        positional, named = self._request(test, order.nbytes)
        pair, queue, clock = self._pairs[0], self._queue, time.perf_counter
        if order.driver == "cpp":
            request = verbs.SendRequest(*positional, **named)
            return _core.bench_verbs_latency(pair, queue, request, order.times, LOOP_TIMEOUT_S)
        seconds = []
        for _ in range(order.times):
            begin = clock()
            pair.post_send(*positional, **named)
            take(queue)
            seconds.append(clock() - begin)
        return seconds

    def _stream(self, test: Test, order: Order) -> float:
        positional, named = self._request(test, order.nbytes)
        pairs, queue = self._pairs[: test.queue_pairs], self._queue
        width = window(order.nbytes)
        if order.driver == "cpp":
            request = verbs.SendRequest(*positional, **named)
            bound = LOOP_TIMEOUT_S
            return _core.bench_verbs_stream(pairs, queue, request, order.times, width, bound)
        posted = done = 0
        begin = time.perf_counter()
        while done < order.times:
            while posted < order.times and posted - done < width:
                pairs[posted % len(pairs)].post_send(*positional, **named)
                posted += 1
            done += take(queue)
        return time.perf_counter() - begin

    def _receive(self, order: Order) -> float:
        """As many receives as there is room for are posted before the other side may begin."""
        pair, queue = self._pairs[0], self._receives
        landing = self._region[self._half : self._half + order.nbytes]
        posted = min(order.times, RECEIVE_DEPTH)
        for _ in range(posted):
            pair.post_receive(landing)
        self._link.exchange(None)
        if order.driver == "cpp":
            bound = LOOP_TIMEOUT_S
            return _core.bench_verbs_receive(pair, queue, landing, order.times, posted, bound)
        done = 0
        begin = time.perf_counter()
        while done < order.times:
            came = take(queue)
            done += came
            for _ in range(min(came, order.times - posted)):
                pair.post_receive(landing)
                posted += 1
        return time.perf_counter() - begin

    def _ping_pong(self, order: Order) -> Sequence[float]:
        nbytes, queue, pair = order.nbytes, self._queue, self._pairs[0]
        positional, named = self._request(TESTS[PING_PONG], nbytes)
        ball, landing = self._array[:nbytes], self._array[self._half : self._half + nbytes]
        if order.driver == "cpp":
            request = verbs.SendRequest(*positional, **named)
            return _core.bench_verbs_ping_pong(
                *(pair, queue, request, ball, landing, order.times, self._first, LOOP_TIMEOUT_S)
            )
        seconds, clock, memory = [], time.perf_counter, landing.data
        for number in range(1, order.times + 1):
            mark = 1 + number % 255
            begin = clock()
            if not self._first:
                poll_for(memory, nbytes - 1, mark)
            ball[nbytes - 1] = mark
            pair.post_send(*positional, **named)
            if self._first:
                poll_for(memory, nbytes - 1, mark)
            take(queue)
            seconds.append((clock() - begin) / 2)
        landing[nbytes - 1] = 0
        return seconds


def take(queue: verbs.CompletionQueue) -> int:
    """Polls until there are completions, and says how many. Raises FigureFailed for one that failed."""
    until = time.monotonic() + LOOP_TIMEOUT_S
    while True:
        for _ in range(LOOKS):
            found = queue.poll()
            if found:
                for completion in found:
                    if not completion.ok:
                        raise FigureFailed(f"{completion.status}: {completion.help}")
                return len(found)
        if time.monotonic() > until:
            raise FigureFailed(f"no completion came in {LOOP_TIMEOUT_S:g} s")

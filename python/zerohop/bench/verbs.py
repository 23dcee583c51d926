"""`zerohop bench verbs`: bare queue pairs of two processes, by zh.verbs, from C++, and by perftest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import zerohop as zh
from zerohop import _core, verbs
from zerohop.bench.loops import LOOKS, LOOP_TIMEOUT_S, each_of, polled_ping_pong
from zerohop.bench.peers import perftest
from zerohop.bench.plan import (
    KIB,
    MIB,
    FigureFailed,
    Options,
    Order,
    PeerFailed,
    Plan,
    Step,
    make_plan,
    window,
)
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Entry, Suite
from zerohop.bench.tables import listed, over_sizes
from zerohop.bench.workers import Player, Workers
from zerohop.errors import Error
from zerohop.host import available_memory
from zerohop.local import Link

QUEUE_PAIRS = 4
SEND_DEPTH, RECEIVE_DEPTH = 128, 256  # per queue pair; bandwidth loops post fewer sends
INLINE_NBYTES = 64
ATOMIC_NBYTES = 8
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB)
SHARE_OF_FREE = 0.1  # of free memory, for each half of the two arenas
PING_PONG = "ping_pong_latency"


@dataclass(frozen=True)
class Test:
    """Posts `operation`, on `queue_pairs` queue pairs in turn. said: title of its table over sizes."""

    operation: str
    said: str = ""
    inline: bool = False
    queue_pairs: int = 1


SIZED = {
    PING_PONG: Test("write", "write, half round trip, its last byte polled"),
    "write_latency": Test("write", "write, from post to completion"),
    "read_latency": Test("read", "read, from post to completion"),
    "send_latency": Test("send", "send, from post to completion"),
    "write": Test("write", "write bandwidth"),
    f"write_{QUEUE_PAIRS}_qp": Test(
        "write", f"write bandwidth, {QUEUE_PAIRS} queue pairs", queue_pairs=QUEUE_PAIRS
    ),
    "read": Test("read", "read bandwidth"),
    "send": Test("send", "send bandwidth"),
}
INLINE = {"write_inline_latency": Test("write", inline=True)}
ATOMIC = {
    "fetch_add_latency": Test("fetch_add"),
    "compare_swap_latency": Test("compare_swap"),
    "fetch_add_rate": Test("fetch_add"),
}
TESTS = {**SIZED, **INLINE, **ATOMIC}
TABLES = (
    *(
        over_sizes(name, test.said, "p50" if name.endswith("latency") else "bandwidth")
        for name, test in SIZED.items()
    ),
    listed(
        "8 B, from post to completion",
        "p50",
        {
            ("write_latency", 8): "write",
            ("write_inline_latency", 8): "write, inline",
            ("fetch_add_latency", ATOMIC_NBYTES): "fetch_add",
            ("compare_swap_latency", ATOMIC_NBYTES): "compare_swap",
        },
    ),
    listed("atomics in flight", "rate", {("fetch_add_rate", ATOMIC_NBYTES): "fetch_add"}),
)


def make(options: Options) -> Suite:
    plan = make_plan(options, available_memory() * SHARE_OF_FREE, QUICK_SIZES)
    device = choose_device(options.device)
    ours = Workers(OURS, 2, End, device, 2 * max(*plan.sizes, ATOMIC_NBYTES))
    entries = [Entry(OURS, ours, needed=True)]
    if "raw" in options.peers:
        entries.append(Entry("raw", ours, ("cpp",), route="verbs"))
    if "perftest" in options.peers:
        entries.append(Entry("perftest", perftest.contender(device), ("cpp",), route="verbs"))
    return Suite("verbs", steps(plan), entries, TABLES, plan=plan)


def steps(plan: Plan) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED]
    small = [nbytes for nbytes in plan.sizes if nbytes <= INLINE_NBYTES]
    found += [plan.step(test, nbytes) for nbytes in small for test in INLINE]
    return found + [plan.step(test, ATOMIC_NBYTES) for test in ATOMIC]


def choose_device(name: str | None) -> str:
    """The named device, if it can be opened, else that of an Endpoint. Raises PeerFailed."""
    try:
        if name is not None:
            return verbs.Device(name).name
        with zh.Endpoint() as endpoint:
            return endpoint.device.split(",")[0]
    except zh.Error as error:
        raise PeerFailed(str(error)) from None


class End(Player):
    """Rank 0 posts; rank 1 owns the remote memory, and receives. Both take part in the ping-pong."""

    def __init__(self, link: Link, device: str, arena_nbytes: int) -> None:
        self._link = link
        self._first = link.rank == 0
        self._device = verbs.Device(device)
        domain = self._device.pd()
        self._queue = verbs.CompletionQueue(self._device, QUEUE_PAIRS * SEND_DEPTH)
        self._receives = verbs.CompletionQueue(self._device, QUEUE_PAIRS * RECEIVE_DEPTH)
        options: dict[str, Any] = {
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
        return {
            "device": self._device.name,
            "route": "verbs",
            "provider": self._device.provider,
            "mtu": self._device.mtu,
            "inline_bytes": self._pairs[0].options["inline_bytes"],
        }

    def close(self) -> None:
        self._region.close()

    def perform(self, order: Order) -> Any:
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
            self._link.exchange(None)  # the receives are posted
            return self._latency(test, order) if latency else self._stream(test, order)
        seconds = self._receive(order) if test.operation == "send" else self._link.exchange(None)
        return () if latency else seconds if isinstance(seconds, float) else 0.0

    def _request(self, test: Test, nbytes: int) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of post_send. Writes go to the other side's second half, which is not read."""
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
        pair, queue = self._pairs[0], self._queue
        if order.driver == "cpp":
            request = verbs.SendRequest(*positional, **named)
            return _core.bench_verbs_latency(pair, queue, request, order.times, LOOP_TIMEOUT_S)
        post = partial(pair.post_send, *positional, **named)
        return each_of(lambda: (post(), take(queue)), order.times)

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
        """Posts as many receives as fit before the other side may begin."""
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
        nbytes, times, queue, pair = order.nbytes, order.times, self._queue, self._pairs[0]
        positional, named = self._request(TESTS[PING_PONG], nbytes)
        if order.driver == "cpp":
            request = verbs.SendRequest(*positional, **named)
            ball, landing = self._array[:nbytes], self._array[self._half : self._half + nbytes]
            return _core.bench_verbs_ping_pong(
                *(pair, queue, request, ball, landing, times, self._first, LOOP_TIMEOUT_S)
            )
        throw, memory = partial(pair.post_send, *positional, **named), self._array.data
        return polled_ping_pong(
            self._first, throw, lambda _: take(queue), memory, nbytes, self._half, times
        )


def take(queue: verbs.CompletionQueue) -> int:
    """Polls until there are completions, and returns how many. Raises FigureFailed if one failed."""
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

"""What single calls cost on one side, from Python and, where C++ has the same call, from there."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zerohop import _core
from zerohop.bench.peer import PeerFailed
from zerohop.stats import percentiles

if TYPE_CHECKING:
    import zerohop as zh
    from zerohop.bench.loops import Side

POSTS = 32  # under one clock reading: fewer than the send queue takes
BATCHES = 200
REGISTERS = 2000
NBYTES = 8
FIRST_SLOT = 100  # of those that the waits are for
BOUND_S = 60.0

Found = dict[str, float]
Samples = Sequence[float]  # seconds a call, of each batch


def post_write(side: Side, driver: str) -> Samples:
    near, far = side.arena[:NBYTES], side.remote[:NBYTES]
    if driver == "cpp":
        return _core.bench_post(side.peer, near, far, POSTS, BATCHES, BOUND_S)
    write = side.peer.write
    return _batches(lambda: write(near, far))


def python_post(side: Side) -> float:
    return statistics.median(post_write(side, "python"))


def notify(side: Side, driver: str) -> Samples:
    if driver == "cpp":
        return _core.bench_notify(side.peer, FIRST_SLOT, POSTS, BATCHES, BOUND_S)
    call = side.peer.notify
    return _batches(lambda: call(FIRST_SLOT, 1))


def wait_notify(side: Side, driver: str) -> Samples:
    """For a notification that is there already."""
    endpoint = side.endpoint
    if driver == "cpp":
        return _core.bench_wait_notify(endpoint, FIRST_SLOT, POSTS, BATCHES, BOUND_S)
    seconds = []
    slots = range(FIRST_SLOT, FIRST_SLOT + POSTS)
    wait = endpoint.wait_notify
    for _ in range(BATCHES):
        for slot in slots:
            endpoint.notify(slot, 1)
        begin = time.perf_counter()
        for slot in slots:
            wait(slot)
        seconds.append((time.perf_counter() - begin) / POSTS)
    return seconds


def write_and_wait(side: Side, driver: str) -> Samples:
    source, target, write = side.arena[:NBYTES], side.remote[:NBYTES], side.peer.write
    if driver == "cpp":
        return _cpp_each(side, "write")
    return _each(lambda: write(source, target).wait())


def read_and_wait(side: Side, driver: str) -> Samples:
    source, target, read = side.remote[:NBYTES], side.arena[:NBYTES], side.peer.read
    if driver == "cpp":
        return _cpp_each(side, "read")
    return _each(lambda: read(source, target).wait())


def write_and_await(side: Side, driver: str) -> Samples:
    if driver == "cpp":
        raise PeerFailed("")  # C++ has no coroutines of this package
    source, target, write = side.arena[:NBYTES], side.remote[:NBYTES], side.peer.write

    async def all_of_them() -> Samples:
        return await _each_awaited(lambda: write(source, target))

    return asyncio.run(all_of_them())


def register_again(side: Side, driver: str) -> Samples:
    """An array that is registered already."""
    if driver == "cpp":
        raise PeerFailed("")  # what it costs is to look at a Python object
    array = np.zeros(64, np.uint8)
    with side.endpoint.register(array):
        return _per_call(lambda: side.endpoint.register(array))


def _named(cost: Callable[[Side, str], Samples]) -> Callable[[Side, str], Found]:
    """Of what a call takes in each batch the median and the 99th percentile."""

    def found(side: Side, driver: str) -> Found:
        told = percentiles(cost(side, driver))
        return {"per_call": told["p50"], "p99": told["p99"]}

    return found


CALLS: dict[str, Callable[[Side, str], Found]] = {
    "post_write": _named(post_write),
    "write_and_wait": _named(write_and_wait),
    "write_and_await": _named(write_and_await),
    "read_and_wait": _named(read_and_wait),
    "notify": _named(notify),
    "wait_notify": _named(wait_notify),
    "register_again": _named(register_again),
}


def per_call(call: Callable[[], object], calls: int = REGISTERS) -> float:
    """Median over ten batches."""
    return statistics.median(_per_call(call, calls))


def _per_call(call: Callable[[], object], calls: int = REGISTERS) -> Samples:
    """Of each batch, which is kept alive to its end: closing is not what is measured."""
    seconds = []
    for _ in range(10):
        begin = time.perf_counter()
        kept = [call() for _ in range(calls // 10)]
        seconds.append((time.perf_counter() - begin) / len(kept))
        del kept
    return seconds


def _batches(post: Callable[[], zh.Transfer]) -> Samples:
    """Of the call alone: what it posts is waited for behind every batch."""
    seconds = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        transfers = [post() for _ in range(POSTS)]
        seconds.append((time.perf_counter() - begin) / POSTS)
        for transfer in transfers:
            transfer.wait()
    return seconds


def _each(call: Callable[[], object]) -> Samples:
    seconds = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(POSTS):
            call()
        seconds.append((time.perf_counter() - begin) / POSTS)
    return seconds


async def _each_awaited(call: Callable[[], Awaitable[object]]) -> Samples:
    seconds = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(POSTS):
            await call()
        seconds.append((time.perf_counter() - begin) / POSTS)
    return seconds


def _cpp_each(side: Side, operation: str) -> Samples:
    near, far = side.arena[:NBYTES], side.remote[:NBYTES]
    batches = [
        _core.bench_stream(side.peer, operation, near, far, POSTS, 1, BOUND_S) / POSTS
        for _ in range(BATCHES)
    ]
    return batches

"""The cost of single calls on one side, from Python and, if C++ has the same call, from C++."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zerohop import _core
from zerohop.bench.loops import batches
from zerohop.bench.plan import Found, PeerFailed, percentiles
from zerohop.bench.side import Side

POSTS = 32  # per clock reading: fewer than the depth of the send queue
BATCHES = 200
NBYTES = 8
FIRST_SLOT = 100  # the first slot of the waits
BOUND_S = 60.0

Samples = Sequence[float]  # seconds per call, for each batch


def cost_of(side: Side, test: str, driver: str) -> Found:
    """The median and the 99th percentile of the seconds per call over all batches."""
    calls = _CPP if driver == "cpp" else _PYTHON
    if test not in calls:
        raise PeerFailed("")  # C++ has no coroutines of this package
    found = percentiles(calls[test](side))
    return {"per_call": found["p50"], "p99": found["p99"]}


def python_post(side: Side) -> float:
    return statistics.median(_post_write(side))


def _write(side: Side) -> Callable[[], Any]:
    return partial(side.peer.write, side.arena[:NBYTES], side.remote[:NBYTES])


def _post_write(side: Side) -> Samples:
    return batches(_write(side), POSTS, BATCHES, wait_for_all)


def wait_for_all(transfers: Sequence[Any]) -> None:
    for transfer in transfers:
        transfer.wait()


def _each_waited_for(post: Callable[[], Any]) -> Samples:
    return batches(lambda: post().wait(), POSTS, BATCHES, len)


def _write_and_await(side: Side) -> Samples:
    write = _write(side)

    async def each() -> Samples:
        seconds = []
        for _ in range(BATCHES):
            begin = time.perf_counter()
            for _ in range(POSTS):
                await write()
            seconds.append((time.perf_counter() - begin) / POSTS)
        return seconds

    return asyncio.run(each())


def _notify(side: Side) -> Samples:
    call = side.peer.notify
    return batches(lambda: call(FIRST_SLOT, 1), POSTS, BATCHES, wait_for_all)


def _wait_notify(side: Side) -> Samples:
    """Waits for notifications that are already there."""
    endpoint, slots = side.endpoint, range(FIRST_SLOT, FIRST_SLOT + POSTS)
    wait = endpoint.wait_notify
    seconds = []
    for _ in range(BATCHES):
        for slot in slots:
            endpoint.notify(slot, 1)
        begin = time.perf_counter()
        for slot in slots:
            wait(slot)
        seconds.append((time.perf_counter() - begin) / POSTS)
    return seconds


def _each_from_cpp(side: Side, operation: str) -> Samples:
    near, far = side.arena[:NBYTES], side.remote[:NBYTES]
    return [
        _core.bench_stream(side.peer, operation, near, far, POSTS, 1, BOUND_S) / POSTS
        for _ in range(BATCHES)
    ]


_PYTHON: dict[str, Callable[[Side], Samples]] = {
    "post_write": _post_write,
    "write_and_wait": lambda side: _each_waited_for(_write(side)),
    "write_and_await": _write_and_await,
    "read_and_wait": lambda side: _each_waited_for(
        partial(side.peer.read, side.remote[:NBYTES], side.arena[:NBYTES])
    ),
    "notify": _notify,
    "wait_notify": _wait_notify,
}
_CPP: dict[str, Callable[[Side], Samples]] = {
    "post_write": lambda side: _core.bench_post(
        side.peer, side.arena[:NBYTES], side.remote[:NBYTES], POSTS, BATCHES, BOUND_S
    ),
    "write_and_wait": lambda side: _each_from_cpp(side, "write"),
    "read_and_wait": lambda side: _each_from_cpp(side, "read"),
    "notify": lambda side: _core.bench_notify(side.peer, FIRST_SLOT, POSTS, BATCHES, BOUND_S),
    "wait_notify": lambda side: _core.bench_wait_notify(
        side.endpoint, FIRST_SLOT, POSTS, BATCHES, BOUND_S
    ),
}
CALLS = tuple(_PYTHON)

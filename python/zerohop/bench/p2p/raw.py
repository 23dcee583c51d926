"""The peer "raw": bare copies of the driver between two GPUs, in one process, cuMemcpyPeerAsync.

What the driver and the link give: no other process, no notification, no list.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.plan import (
    BATCHES,
    BLOCK_TESTS,
    HALO_NBYTES,
    HALO_PITCH,
    POSTS,
    places,
)
from zerohop.local import Link


class Raw:
    def __init__(
        self, link: Link, gpus: tuple[int, int], arena_nbytes: int, library: Any = None
    ) -> None:
        driver = Driver(library)
        self._here, self._there = (driver.gpu(ordinal) for ordinal in gpus)
        if gpus[0] != gpus[1]:
            self._here.reach(self._there)
            self._there.reach(self._here)
        self._half = arena_nbytes // 2
        self._near = self._here.allocate(arena_nbytes)
        self._far = self._there.allocate(arena_nbytes)
        self._back = self._there.stream()
        self._stream = self._here.stream()

    def facts(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """All of it goes with the process."""

    def _out(self, offset: int, place: int, nbytes: int) -> Callable[[], None]:
        """A copy from here to there, from and to these offsets in the two halves."""
        target = self._there, self._far + self._half + place
        return self._stream.copier(target, (self._here, self._near + offset), nbytes)

    def _timed(self, enqueue: Callable[[], object], times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            enqueue()
        self._stream.synchronize()
        return time.perf_counter() - begin

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        copy = self._out(0, 0, nbytes)
        return [self._timed(copy, 1) for _ in range(times)]

    def write(self, nbytes: int, times: int) -> float:
        return self._timed(self._out(0, 0, nbytes), times)

    def read(self, nbytes: int, times: int) -> float:
        target = self._here, self._near + self._half
        copy = self._stream.copier(target, (self._there, self._far), nbytes)
        return self._timed(copy, times)

    def both(self, nbytes: int, times: int) -> float:
        out = self._out(0, 0, nbytes)
        target = self._here, self._near + self._half
        back = self._back.copier(target, (self._there, self._far), nbytes)
        begin = time.perf_counter()
        for _ in range(times):
            out()
            back()
        self._stream.synchronize()
        self._back.synchronize()
        return time.perf_counter() - begin

    def post_write(self, nbytes: int, times: int) -> dict[str, float]:
        copy, clock = self._out(0, 0, nbytes), time.perf_counter
        batches = []
        for _ in range(BATCHES):
            begin = clock()
            for _ in range(POSTS):
                copy()
            batches.append((clock() - begin) / POSTS)
            self._stream.synchronize()
        return {"per_call": statistics.median(batches)}

    def write_many_4k(self, nbytes: int, times: int) -> float:
        return self._loop(BLOCK_TESTS["write_many_4k"], nbytes, times)

    def write_many_16k(self, nbytes: int, times: int) -> float:
        return self._loop(BLOCK_TESTS["write_many_16k"], nbytes, times)

    def write_many_64k(self, nbytes: int, times: int) -> float:
        return self._loop(BLOCK_TESTS["write_many_64k"], nbytes, times)

    def _loop(self, block: int, nbytes: int, times: int) -> float:
        order = places(nbytes // block).tolist()
        return self._each([(i * block, j * block, block) for i, j in enumerate(order)], times)

    def halo(self, nbytes: int, times: int) -> float:
        """Row by row."""
        last = HALO_PITCH - HALO_NBYTES
        rows = [i * HALO_PITCH for i in range(nbytes // HALO_NBYTES)]
        return self._each([(row, row + last, HALO_NBYTES) for row in rows], times)

    def _each(self, moves: list[tuple[int, int, int]], times: int) -> float:
        copies = [self._out(*move) for move in moves]

        def enqueue() -> None:
            for copy in copies:
                copy()

        return self._timed(enqueue, times)

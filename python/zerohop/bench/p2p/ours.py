"""zerohop between two GPUs: the code of each of the two processes. Rank 0 is the active one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import zerohop as zh
from zerohop.bench.calls import python_post
from zerohop.bench.loops import each_of, stream_seconds
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.plan import BLOCK_TESTS, HALO_NBYTES, HALO_PITCH, places
from zerohop.bench.p2p.streams import PingPong
from zerohop.bench.pair import LOOPS, facts_of
from zerohop.bench.plan import Found, Order, window
from zerohop.bench.side import join
from zerohop.bench.workers import Player
from zerohop.local import Link

WAIT_S = 20.0  # bound of every wait
BOTH_SIDES = ("both", "stream_notify")  # rank 1 takes part, too


class Ours(Player):
    def __init__(
        self,
        link: Link,
        device: str | None,
        gpus: tuple[int, int],
        arena_nbytes: int,
        library: Any = None,
    ) -> None:
        self._link = link
        self._gpu = gpus[link.rank]
        self._endpoint = zh.Endpoint(device, p2p=1, timeout=WAIT_S)
        self._side = join(link, self._endpoint, self._empty(arena_nbytes))
        self._ping_pong = PingPong(link, self._side, Driver(library).gpu(self._gpu))
        self.both(8, 1)  # set-up at the first use is not timed
        link.exchange(None)

    def _empty(self, nbytes: int) -> zh.Memory:
        return self._endpoint.empty(nbytes, "uint8", device=f"cuda:{self._gpu}")

    def facts(self) -> dict[str, Any]:
        return facts_of(self._side)

    def close(self) -> None:
        self._endpoint.close()

    def perform(self, order: Order) -> Any:
        test, _, nbytes, times = order
        if not self._side.first and test not in BOTH_SIDES:
            return () if test.endswith("latency") else 0.0
        if block := BLOCK_TESTS.get(test):
            return self._pages(block, nbytes, times)
        if test in ("write", "read"):
            return getattr(LOOPS["python"], test)(self._side, nbytes, times)
        return super().perform(order)

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        side = self._side
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        write = side.peer.write
        return each_of(lambda: write(source, target).wait(), times)

    def both(self, nbytes: int, times: int) -> float:
        side = self._side
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        self._link.exchange(None)
        return stream_seconds(lambda: side.peer.write(source, target), times, window(nbytes))

    def stream_notify(self, nbytes: int, times: int) -> Found:
        return self._ping_pong.measure(nbytes)

    def post_write(self, nbytes: int, times: int) -> Found:
        return {"per_call": python_post(self._side)}

    def _pages(self, block: int, nbytes: int, times: int) -> float:
        side, count = self._side, nbytes // block
        source = side.arena[:nbytes].reshape(count, block)
        target = side.remote[side.inbox(nbytes)].reshape(count, block)
        numbers, order = np.arange(count), places(count)
        return stream_seconds(
            lambda: side.peer.write_pages(source, target, numbers, order), times, window(nbytes)
        )

    def halo(self, nbytes: int, times: int) -> float:
        """The first columns of one matrix into the last of the other."""
        side = self._side
        rows = nbytes // HALO_NBYTES
        whole = rows * HALO_PITCH
        source = side.arena[:whole].reshape(rows, HALO_PITCH)[:, :HALO_NBYTES]
        target = side.remote[side.inbox(whole)].reshape(rows, HALO_PITCH)[:, -HALO_NBYTES:]
        return stream_seconds(lambda: side.peer.write(source, target), times, window(nbytes))

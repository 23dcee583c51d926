"""zerohop between two GPUs: what each of its two processes does. Rank 0 is the active one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import zerohop as zh
from zerohop.bench.loops import LOOPS, Side, stream_seconds
from zerohop.bench.overhead import python_post
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.mapping import Mappings
from zerohop.bench.p2p.plan import BLOCK_TESTS, HALO_NBYTES, HALO_PITCH, places
from zerohop.bench.p2p.streams import PingPong
from zerohop.bench.plan import window
from zerohop.local import Link

WAIT_S = 20.0  # bound of every wait


class Ours:
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
        addresses = link.exchange(self._endpoint.address)
        peer = self._endpoint.connect(addresses[1 - link.rank])
        arena = self._empty(arena_nbytes)
        remote = link.exchange(arena.remote)[1 - link.rank]
        self._side = Side(link.rank == 0, self._endpoint, peer, arena, remote)
        self._ping_pong = PingPong(link, self._side, Driver(library).gpu(self._gpu))
        self._mappings = Mappings(link, self._side, self._empty)
        link.exchange(None)

    def _empty(self, nbytes: int) -> zh.Memory:
        return self._endpoint.empty(nbytes, "uint8", device=f"cuda:{self._gpu}")

    def facts(self) -> dict[str, str]:
        side = self._side
        route = side.peer.route(side.arena, side.remote)
        lists = "write_pages" if hasattr(side.peer, "write_pages") else "write_many"
        return {
            "device": self._endpoint.device,
            "route": route.kind,
            "route_reason": route.reason,
            "lists": lists,
        }

    def close(self) -> None:
        self._endpoint.close()

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        side = self._side
        if not side.first:
            return ()
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        write, clock = side.peer.write, time.perf_counter
        seconds = []
        for _ in range(times):
            begin = clock()
            write(source, target).wait()
            seconds.append(clock() - begin)
        return seconds

    def write(self, nbytes: int, times: int) -> float:
        return LOOPS["python"].write(self._side, nbytes, times)

    def read(self, nbytes: int, times: int) -> float:
        return LOOPS["python"].read(self._side, nbytes, times)

    def both(self, nbytes: int, times: int) -> float:
        side = self._side
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        self._link.exchange(None)
        return stream_seconds(lambda: side.peer.write(source, target), times, window(nbytes))

    def stream_notify(self, nbytes: int, times: int) -> dict[str, float]:
        return self._ping_pong.measure(nbytes)

    def post_write(self, nbytes: int, times: int) -> dict[str, float]:
        return {"per_call": python_post(self._side)} if self._side.first else {}

    def mapping(self, nbytes: int, times: int) -> dict[str, float]:
        return self._mappings.measure(nbytes)

    def write_many_4k(self, nbytes: int, times: int) -> float:
        return self._pages(BLOCK_TESTS["write_many_4k"], nbytes, times)

    def write_many_16k(self, nbytes: int, times: int) -> float:
        return self._pages(BLOCK_TESTS["write_many_16k"], nbytes, times)

    def write_many_64k(self, nbytes: int, times: int) -> float:
        return self._pages(BLOCK_TESTS["write_many_64k"], nbytes, times)

    def _pages(self, block: int, nbytes: int, times: int) -> float:
        side = self._side
        if not side.first:
            return 0.0
        count = nbytes // block
        source = side.arena[:nbytes].reshape(count, block)
        target = side.remote[side.inbox(nbytes)].reshape(count, block)
        return stream_seconds(self._post_pages(source, target), times, window(nbytes))

    def _post_pages(self, source: zh.Memory, target: zh.RemoteMemory) -> Callable[[], zh.Transfer]:
        peer: Any = self._side.peer
        order = places(len(source))
        if hasattr(peer, "write_pages"):
            numbers = np.arange(len(order))
            return lambda: peer.write_pages(source, target, numbers, order)
        pairs = [(source[i], target[j]) for i, j in enumerate(order.tolist())]
        return lambda: peer.write_many(pairs)

    def halo(self, nbytes: int, times: int) -> float:
        """The first columns of one matrix into the last of the other."""
        side = self._side
        if not side.first:
            return 0.0
        rows = nbytes // HALO_NBYTES
        whole = rows * HALO_PITCH
        source = side.arena[:whole].reshape(rows, HALO_PITCH)[:, :HALO_NBYTES]
        target = side.remote[side.inbox(whole)].reshape(rows, HALO_PITCH)[:, -HALO_NBYTES:]
        return stream_seconds(lambda: side.peer.write(source, target), times, window(nbytes))

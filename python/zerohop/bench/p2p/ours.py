"""zerohop between two GPUs: what each of its two processes does. Rank 0 is the active one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import zerohop as zh
from zerohop.bench.loops import LOOPS, Side, stream_seconds
from zerohop.bench.overhead import python_post
from zerohop.bench.p2p.driver import Driver, Event
from zerohop.bench.p2p.plan import (
    BATCHES,
    BLOCK_TESTS,
    HALO_NBYTES,
    HALO_PITCH,
    MAPPINGS,
    POSTS,
    ROUNDS,
    places,
)
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import window
from zerohop.local import Link

BALL, GATE = 1, 2  # notification slots
WAIT_S = 20.0  # bound of every wait
WARM = 20  # writes whose median is that of a mapped write


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
        self._stream = Driver(library).gpu(self._gpu).stream()
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
        """Write + notify from stream to stream and back, ROUNDS times, all of it enqueued ahead.

        Rank 0's stream stands before a gate until both sides have enqueued; events behind the gate and
        at the end tell the time. Without stream order in this build: PeerFailed with the reason.
        """
        side = self._side
        for slot in (BALL, GATE):
            self._endpoint.reset_notify(slot)
        self._link.exchange(None)
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        try:
            begin, end, posts, kept = self._enqueue(source, target)
            trouble = ""
        except (zh.RouteUnavailable, TypeError) as error:
            trouble = f"not available: {error}".splitlines()[0]
        for said in self._link.exchange(trouble):
            if said:
                raise PeerFailed(said)
        if not side.first:
            side.peer.notify(GATE, 1).wait()
        self._stream.wait(WAIT_S)
        for transfer in kept:
            transfer.wait()
        one_way = self._stream.seconds_between(begin, end) / ROUNDS / 2
        return {"one_way": one_way, "per_call": statistics.median(posts)}

    def _enqueue(
        self, source: zh.Memory, target: zh.RemoteMemory
    ) -> tuple[Event, Event, list[float], list[zh.Transfer]]:
        """(event behind the gate, event at the end, seconds of each write's call, what to wait for)."""
        first, stream, clock = self._side.first, self._stream, time.perf_counter
        write: Any = self._side.peer.write
        wait: Any = self._endpoint.wait_notify
        handle = int(stream)
        kept, posts = [], []
        if first:
            kept.append(wait(GATE, stream=handle))
        begin = stream.event()
        for value in range(1, ROUNDS + 1):
            if not first:
                kept.append(wait(BALL, stream=handle))
            before = clock()
            kept.append(write(source, target, notify=(BALL, value), stream=handle))
            posts.append(clock() - before)
            if first:
                kept.append(wait(BALL, stream=handle))
        return begin, stream.event(), posts, kept

    def post_write(self, nbytes: int, times: int) -> dict[str, float]:
        return {"per_call": python_post(self._side)} if self._side.first else {}

    def mapping(self, nbytes: int, times: int) -> dict[str, float]:
        """What the first write to an allocation of `nbytes` takes more than later ones, and what a write
        takes more that names mapped memory by a RemoteMemory that was never used."""
        first = [self._map_fresh(nbytes) for _ in range(MAPPINGS)]
        if not self._side.first:
            return {}
        known = max(0.0, self._post_new_views() - python_post(self._side))
        return {"first": statistics.median(first), "cached": known}

    def _map_fresh(self, nbytes: int) -> float:
        side = self._side
        fresh = None if side.first else self._empty(nbytes)
        remote = self._link.exchange(None if fresh is None else fresh.remote)[1]
        seconds = 0.0
        if side.first:
            source, target = side.arena[:8], remote[:8]

            def write() -> float:
                begin = time.perf_counter()
                side.peer.write(source, target).wait()
                return time.perf_counter() - begin

            cold = write()
            seconds = max(0.0, cold - statistics.median(write() for _ in range(WARM)))
        self._link.exchange(None)
        if fresh is not None:
            fresh.close()
        return seconds

    def _post_new_views(self) -> float:
        side = self._side
        source, write = side.arena[:8], side.peer.write
        batches = []
        for batch in range(BATCHES):
            slices = [side.remote[i : i + 8] for i in range(8 * batch, 8 * (batch + POSTS), 8)]
            views = [zh.RemoteMemory.from_bytes(part.to_bytes()) for part in slices]
            begin = time.perf_counter()
            transfers = [write(source, view) for view in views]
            batches.append((time.perf_counter() - begin) / POSTS)
            for transfer in transfers:
                transfer.wait()
        return statistics.median(batches)

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

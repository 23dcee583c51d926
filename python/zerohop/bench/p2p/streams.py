"""zerohop from stream to stream: write + notify to a stream of the other process and back, enqueued ahead.

A wait in a stream is a kernel that runs until its notification comes. Meanwhile CUDA may block calls that
load kernels, register or map memory in that process, so each measurement does all of this once before.
Nothing that is needed to continue may be queued behind a wait. A notification of the CPU follows every earlier
write, including those in streams, so a write in a separate stream opens the gate. If a
wait is in vain nevertheless, its bound ends it, and the stream drains.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import NamedTuple

import zerohop as zh
from zerohop.bench.p2p.driver import Event, Gpu
from zerohop.bench.p2p.plan import ROUNDS
from zerohop.bench.side import Side
from zerohop.bench.workers import together
from zerohop.local import Link

BALL, GATE = 1, 2  # notification slots
OPEN_S = 10.0  # bound of the waits during which both sides enqueue
BALL_S = 0.5  # bound of the others: the ball is on its way, or waits for its turn on a shared GPU
DRAIN_S = 2 * OPEN_S + ROUNDS * BALL_S  # after this every wait has ended, if only by its bound


class Enqueued(NamedTuple):
    begin: Event  # after the gate
    end: Event
    posts: list[float]  # seconds of each call of write
    kept: list[zh.Transfer]  # writes and waits


class PingPong:
    """Rank 0 throws first, when rank 1 opens the gate at which rank 0's stream waits."""

    def __init__(self, link: Link, side: Side, gpu: Gpu) -> None:
        self._link = link
        self._side = side
        self._stream = gpu.stream()
        self._aside = gpu.stream()  # not ordered with the other

    def measure(self, nbytes: int) -> dict[str, float]:
        """{"one_way": s, "per_call": s of host time}. Raises PeerFailed in both ranks."""
        source = self._side.arena[:nbytes]
        target = self._side.remote[self._side.inbox(nbytes)]
        self._warm_up(source, target)
        try:
            enqueued = together(self._link, partial(self._enqueue, source, target))
            one_way = together(self._link, partial(self._play, source, target, enqueued))
        finally:
            self._stream.wait(DRAIN_S)
        return {"one_way": one_way, "per_call": statistics.median(enqueued.posts)}

    def _warm_up(self, source: zh.Memory, target: zh.RemoteMemory) -> None:
        """Does everything once; each wait is for a notification that has already arrived."""
        for slot in (BALL, GATE):
            self._side.endpoint.reset_notify(slot)
        self._link.exchange(None)
        together(self._link, partial(self._greet, source, target))
        together(self._link, self._hear)

    def _greet(self, source: zh.Memory, target: zh.RemoteMemory) -> None:
        write = self._side.peer.write
        write(source, target, notify=(BALL, 1), stream=int(self._stream)).wait()
        self._open(source, target).wait()

    def _hear(self) -> None:
        heard = [self._wait(slot, BALL_S) for slot in (BALL, GATE)]
        self._stream.wait(DRAIN_S)
        for transfer in heard:
            transfer.wait()

    def _enqueue(self, source: zh.Memory, target: zh.RemoteMemory) -> Enqueued:
        first, clock = self._side.first, time.perf_counter
        write, stream = self._side.peer.write, int(self._stream)
        kept, posts = [], []
        if first:
            kept.append(self._wait(GATE, OPEN_S))
        begin = self._stream.event()
        for value in range(1, ROUNDS + 1):
            if not first:
                kept.append(self._wait(BALL, OPEN_S if value == 1 else BALL_S))
            before = clock()
            kept.append(write(source, target, notify=(BALL, value), stream=stream))
            posts.append(clock() - before)
            if first:
                kept.append(self._wait(BALL, BALL_S))
        return Enqueued(begin, self._stream.event(), posts, kept)

    def _play(self, source: zh.Memory, target: zh.RemoteMemory, enqueued: Enqueued) -> float:
        """Seconds one way."""
        if not self._side.first:
            enqueued.kept.append(self._open(source, target))
        self._stream.wait(DRAIN_S)
        for transfer in enqueued.kept:
            transfer.wait()
        return self._stream.seconds_between(enqueued.begin, enqueued.end) / ROUNDS / 2

    def _open(self, source: zh.Memory, target: zh.RemoteMemory) -> zh.Transfer:
        return self._side.peer.write(source, target, notify=(GATE, 1), stream=int(self._aside))

    def _wait(self, slot: int, bound: float) -> zh.Transfer:
        return self._side.endpoint.wait_notify(slot, bound, stream=int(self._stream))

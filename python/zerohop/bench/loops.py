"""The measuring loops, driven by Python and by C++: the difference is what Python costs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

import zerohop as zh
from zerohop import _core
from zerohop.bench.plan import window

SLOT = 1  # the notification slot of the ping-pong, on both sides
TAG = 7
LOOP_TIMEOUT_S = 60.0  # for one loop as a whole


@dataclass(frozen=True)
class Side:
    """One of the two workers. Every test moves bytes between the beginnings of the two arenas."""

    first: bool  # begins the ping-pong, and is the active one elsewhere
    endpoint: zh.Endpoint
    peer: zh.Peer
    arena: zh.Memory
    remote: zh.RemoteMemory

    def inbox(self, nbytes: int) -> slice:
        """Where a write lands that nothing announces: away from where it comes from, on both sides."""
        half = self.arena.nbytes // 2
        return slice(half, half + nbytes)

    def pairs(self, block: int, count: int) -> list[tuple[zh.Memory, zh.RemoteMemory]]:
        """`count` blocks of `block` bytes, each written to another place than it comes from."""
        places = [(7 * i + 3) % count for i in range(count)]  # 7 and a power of two: a permutation
        return [
            (
                self.arena[i * block : (i + 1) * block],
                self.remote[place * block : (place + 1) * block],
            )
            for i, place in enumerate(places)
        ]


class Loops(Protocol):
    """Each returns seconds: of every half round trip, or of the whole."""

    def latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]: ...

    def write_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]: ...

    def send_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]: ...

    def write(self, side: Side, nbytes: int, times: int) -> float: ...

    def read(self, side: Side, nbytes: int, times: int) -> float: ...

    def send(self, side: Side, nbytes: int, times: int) -> float: ...

    def write_many(self, side: Side, block: int, count: int, times: int) -> float: ...


class PythonLoops:
    def latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        source, target = side.arena[:nbytes], side.remote[:nbytes]
        write, wait, clock = side.peer.write, side.endpoint.wait_notify, time.perf_counter
        seconds = []
        transfer = None
        for value in range(1, times + 1):
            begin = clock()
            if side.first:
                transfer = write(source, target, notify=(SLOT, value))
            got = wait(SLOT)
            if not side.first:
                transfer = write(source, target, notify=(SLOT, value))
            seconds.append((clock() - begin) / 2)
            if got != value:
                raise RuntimeError(f"ping-pong: round {value} was answered with {got}")
        if transfer is not None:
            transfer.wait()
        return seconds

    def write_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        """Without a notification: the last byte is polled, and tells the round (1 to 255, never 0)."""
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        memory = np.asarray(side.arena).data
        place = side.inbox(nbytes).stop - 1
        write, clock = side.peer.write, time.perf_counter
        seconds = []
        for number in range(1, times + 1):
            mark = 1 + number % 255
            begin = clock()
            if not side.first:
                poll_for(memory, place, mark)
            memory[nbytes - 1] = mark
            transfer = write(source, target)
            if side.first:
                poll_for(memory, place, mark)
            transfer.wait()
            seconds.append((clock() - begin) / 2)
        memory[place] = 0
        return seconds

    def send_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        source, inbox = side.arena[:nbytes], side.arena[side.inbox(nbytes)]
        send, recv, clock = side.peer.send, side.peer.recv, time.perf_counter
        seconds = []
        for _ in range(times):
            begin = clock()
            caught = recv(inbox, tag=TAG)
            if not side.first:
                caught.wait()
            thrown = send(source, tag=TAG)
            if side.first:
                caught.wait()
            thrown.wait()
            seconds.append((clock() - begin) / 2)
        return seconds

    def write(self, side: Side, nbytes: int, times: int) -> float:
        if not side.first:
            return 0.0
        source, target = side.arena[:nbytes], side.remote[:nbytes]
        return stream_seconds(lambda: side.peer.write(source, target), times, window(nbytes))

    def read(self, side: Side, nbytes: int, times: int) -> float:
        if not side.first:
            return 0.0
        source, target = side.remote[:nbytes], side.arena[:nbytes]
        return stream_seconds(lambda: side.peer.read(source, target), times, window(nbytes))

    def send(self, side: Side, nbytes: int, times: int) -> float:
        part = side.arena[:nbytes]
        act = side.peer.send if side.first else side.peer.recv
        return stream_seconds(lambda: act(part, tag=TAG), times, window(nbytes))

    def write_many(self, side: Side, block: int, count: int, times: int) -> float:
        if not side.first:
            return 0.0
        pairs = side.pairs(block, count)
        return stream_seconds(lambda: side.peer.write_many(pairs), times, window(block * count))


class CppLoops:
    def latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        source, target = side.arena[:nbytes], side.remote[:nbytes]
        seconds: Sequence[float] = _core.bench_ping_pong(
            side.endpoint, side.peer, source, target, SLOT, times, side.first, LOOP_TIMEOUT_S
        )
        return seconds

    def write_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        inbox = side.inbox(nbytes)
        seconds: Sequence[float] = _core.bench_memory_ping_pong(
            *(side.peer, side.arena[:nbytes], side.remote[inbox], side.arena[inbox]),
            *(times, side.first, LOOP_TIMEOUT_S),
        )
        return seconds

    def send_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        source, inbox = side.arena[:nbytes], side.arena[side.inbox(nbytes)]
        seconds: Sequence[float] = _core.bench_message_ping_pong(
            side.peer, source, inbox, times, side.first, LOOP_TIMEOUT_S
        )
        return seconds

    def write(self, side: Side, nbytes: int, times: int) -> float:
        return self._stream(side, "write", nbytes, times) if side.first else 0.0

    def read(self, side: Side, nbytes: int, times: int) -> float:
        return self._stream(side, "read", nbytes, times) if side.first else 0.0

    def send(self, side: Side, nbytes: int, times: int) -> float:
        return self._stream(side, "send" if side.first else "recv", nbytes, times)

    def write_many(self, side: Side, block: int, count: int, times: int) -> float:
        if not side.first:
            return 0.0
        pairs = side.pairs(block, count)
        return _core.bench_write_many(
            side.peer, pairs, times, window(block * count), LOOP_TIMEOUT_S
        )

    def _stream(self, side: Side, operation: str, nbytes: int, times: int) -> float:
        local, remote = side.arena[:nbytes], side.remote[:nbytes]
        return _core.bench_stream(
            side.peer, operation, local, remote, times, window(nbytes), LOOP_TIMEOUT_S
        )


LOOPS: dict[str, Loops] = {"python": PythonLoops(), "cpp": CppLoops()}


def poll_for(memory: memoryview, place: int, mark: int) -> None:
    looks = 0
    until = time.perf_counter() + LOOP_TIMEOUT_S
    while memory[place] != mark:
        looks += 1
        if looks % 4096 == 0 and time.perf_counter() > until:
            raise TimeoutError(f"the write that ends in {mark} did not come")


def stream_seconds(post: Callable[[], zh.Transfer], times: int, width: int) -> float:
    """Seconds from the first of `times` posts to the last completion, `width` under way."""
    pending: deque[zh.Transfer] = deque()
    begin = time.perf_counter()
    for _ in range(times):
        if len(pending) == width:
            pending.popleft().wait()
        pending.append(post())
    for transfer in pending:
        transfer.wait()
    return time.perf_counter() - begin

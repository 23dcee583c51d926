"""Two zerohop processes with an arena each: loops in Python and C++; the difference is the cost of Python."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import zerohop as zh
from zerohop import _core
from zerohop.bench.calls import CALLS, cost_of
from zerohop.bench.loops import LOOP_TIMEOUT_S, WAITS, polled_ping_pong, stream_seconds
from zerohop.bench.plan import KIB, Order, window
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Entry
from zerohop.bench.side import Side, join
from zerohop.bench.workers import Player, Workers
from zerohop.local import Link

BLOCK_TESTS = {"write_many_4k": 4 * KIB, "write_many_64k": 64 * KIB}  # test: bytes per block
BY_DEVICE = "p2p=0: the device moves the bytes, as between hosts"  # one of our settings
SLOT = 1  # the notification slot of the ping-pong, on both sides
TAG = 7


class PythonLoops:
    """Each returns seconds: of every half round trip, or in total."""

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
        source, target = side.arena[:nbytes], side.remote[side.inbox(nbytes)]
        throw, memory = partial(side.peer.write, source, target), np.asarray(side.arena).data
        place = side.inbox(nbytes).start
        return polled_ping_pong(side.first, throw, WAITS, memory, nbytes, place, times)

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
        source, target = side.arena[:nbytes], side.remote[:nbytes]
        return stream_seconds(lambda: side.peer.write(source, target), times, window(nbytes))

    def read(self, side: Side, nbytes: int, times: int) -> float:
        source, target = side.remote[:nbytes], side.arena[:nbytes]
        return stream_seconds(lambda: side.peer.read(source, target), times, window(nbytes))

    def send(self, side: Side, nbytes: int, times: int) -> float:
        part = side.arena[:nbytes]
        act = side.peer.send if side.first else side.peer.recv
        return stream_seconds(lambda: act(part, tag=TAG), times, window(nbytes))

    def write_many(self, side: Side, block: int, count: int, times: int) -> float:
        pairs = side.pairs(block, count)
        return stream_seconds(lambda: side.peer.write_many(pairs), times, window(block * count))


class CppLoops:
    """The same loops in C++."""

    def latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        source, target = side.arena[:nbytes], side.remote[:nbytes]
        return _core.bench_ping_pong(
            side.endpoint, side.peer, source, target, SLOT, times, side.first, LOOP_TIMEOUT_S
        )

    def write_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        inbox = side.inbox(nbytes)
        return _core.bench_memory_ping_pong(
            *(side.peer, side.arena[:nbytes], side.remote[inbox], side.arena[inbox]),
            *(times, side.first, LOOP_TIMEOUT_S),
        )

    def send_latency(self, side: Side, nbytes: int, times: int) -> Sequence[float]:
        source, inbox = side.arena[:nbytes], side.arena[side.inbox(nbytes)]
        return _core.bench_message_ping_pong(
            side.peer, source, inbox, times, side.first, LOOP_TIMEOUT_S
        )

    def write(self, side: Side, nbytes: int, times: int) -> float:
        return self._stream(side, "write", nbytes, times)

    def read(self, side: Side, nbytes: int, times: int) -> float:
        return self._stream(side, "read", nbytes, times)

    def send(self, side: Side, nbytes: int, times: int) -> float:
        return self._stream(side, "send" if side.first else "recv", nbytes, times)

    def write_many(self, side: Side, block: int, count: int, times: int) -> float:
        pairs, width = side.pairs(block, count), window(block * count)
        return _core.bench_write_many(side.peer, pairs, times, width, LOOP_TIMEOUT_S)

    def _stream(self, side: Side, operation: str, nbytes: int, times: int) -> float:
        local, remote = side.arena[:nbytes], side.remote[:nbytes]
        return _core.bench_stream(
            side.peer, operation, local, remote, times, window(nbytes), LOOP_TIMEOUT_S
        )


LOOPS: dict[str, PythonLoops | CppLoops] = {"python": PythonLoops(), "cpp": CppLoops()}
ONE_SIDED = ("write", "read", *BLOCK_TESTS)


class Pair(Player):
    """One of two connected ends, with an arena each.

    p2p: whether memory is copied without the device. memory: where the arena lies, "empty" (memory of
    Endpoint.empty) or "numpy" (any array, registered). integrity: whether transfers are checked.
    """

    def __init__(
        self,
        link: Link,
        device: str | None,
        arena_nbytes: int,
        p2p: int = 0,
        memory: str = "empty",
        integrity: int = 0,
    ) -> None:
        endpoint = zh.Endpoint(device, p2p=p2p, integrity=integrity)
        if memory == "numpy":
            arena = endpoint.register(np.empty(arena_nbytes, np.uint8))
        else:
            arena = endpoint.empty(arena_nbytes, "uint8")
        self._ball = np.asarray(arena)
        self._ball.fill(0)  # touches every page before any clock runs
        self._tcp = connect_tcp(link)
        self._side = join(link, endpoint, arena)
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        return facts_of(self._side)

    def perform(self, order: Order) -> Any:
        side, (test, driver, nbytes, times) = self._side, order
        if test in CALLS:
            return cost_of(side, test, driver) if side.first else {}
        if test.startswith("tcp_"):
            run = _core.bench_tcp_ping_pong if test == "tcp_latency" else _core.bench_tcp_stream
            return run(
                *(side.endpoint, self._tcp.fileno(), self._ball[:nbytes]),
                *(times, side.first, LOOP_TIMEOUT_S),
            )
        if test in ONE_SIDED and not side.first:
            return 0.0
        if block := BLOCK_TESTS.get(test):
            return LOOPS[driver].write_many(side, block, nbytes // block, times)
        return getattr(LOOPS[driver], test)(side, nbytes, times)

    def close(self) -> None:
        self._tcp.close()
        self._side.endpoint.close()


def entry_of(
    part: str, said: str, device: str | None, nbytes: int, drivers: Sequence[str], **settings: Any
) -> Entry:
    """Our entry for one part of the report. settings: for a Pair; without p2p=1 by the device."""
    contender = Workers(OURS, 2, partial(Pair, **settings), device, nbytes)
    by_device = not settings.get("p2p")
    return Entry(
        OURS,
        contender,
        drivers,
        part,
        must_go="" if by_device else "p2p",
        settings=BY_DEVICE if by_device else "",
        label=f"{OURS}, {said}",
    )


def facts_of(side: Side) -> dict[str, Any]:
    route = side.peer.route(side.arena, side.remote)
    return {
        "device": side.endpoint.device,
        "route": route.kind,
        "reason": route.reason,
        "mtu": route.settings["mtu"],
    }


def connect_tcp(link: Link) -> socket.socket:
    """A loopback connection between the two workers, and to nobody else: each announces its port."""
    if link.rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            link.exchange(server.getsockname()[1])
            connection, address = server.accept()
            if link.exchange(None)[1] != address[1]:
                raise ConnectionError(
                    "another program connected to the benchmark's TCP port: try again"
                )
    else:
        port = link.exchange(None)[0]
        connection = socket.create_connection(("127.0.0.1", port))
        link.exchange(connection.getsockname()[1])
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection

"""What each of the two worker processes of ours does between arrays of the host: carry out orders."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

import zerohop as zh
from zerohop import _core
from zerohop.bench.loops import LOOP_TIMEOUT_S, LOOPS, Side
from zerohop.bench.overhead import CALLS, Found
from zerohop.bench.plan import BLOCK_TESTS, Order
from zerohop.bench.turns import serve
from zerohop.local import Link

BY_DEVICE = "p2p=0: the device moves the bytes, as between hosts"  # a setting of ours


def work(link: Link, *arguments: Any) -> None:
    """A worker that answers "facts" and Orders until it gets None."""
    serve(link, Pair, *arguments)


class Pair:
    """One of two ends that are connected, with an arena each.

    p2p: whether memory is copied without the device. memory: where the arena lies, "empty" (that of
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
        self._tcp = connect_tcp(link)
        addresses = link.exchange(endpoint.address)
        peer = endpoint.connect(addresses[1 - link.rank])
        if memory == "numpy":
            arena = endpoint.register(np.empty(arena_nbytes, np.uint8))
        else:
            arena = endpoint.empty(arena_nbytes, "uint8")
        self._ball = np.asarray(arena)
        self._ball.fill(0)  # touches every page before any clock runs
        remote = link.exchange(arena.remote)[1 - link.rank]
        self._side = Side(link.rank == 0, endpoint, peer, arena, remote)
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        side = self._side
        route = side.peer.route(side.arena, side.remote)
        return {
            "device": side.endpoint.device,
            "route": route.kind,
            "reason": route.reason,
            "mtu": route.settings["mtu"],
        }

    def perform(self, order: Order) -> float | Sequence[float] | Found:
        side = self._side
        if order.test in CALLS:
            return CALLS[order.test](side, order.driver) if side.first else {}
        if order.test.startswith("tcp_"):
            return self._measure_tcp(order)
        loops = LOOPS[order.driver]
        if order.test in BLOCK_TESTS:
            block = BLOCK_TESTS[order.test]
            return loops.write_many(side, block, order.nbytes // block, order.times)
        loop: Any = getattr(loops, order.test)
        seconds: float | Sequence[float] = loop(side, order.nbytes, order.times)
        return seconds

    def _measure_tcp(self, order: Order) -> float | Sequence[float]:
        message = self._ball[: order.nbytes]
        ping_pong = order.test == "tcp_latency"
        run = _core.bench_tcp_ping_pong if ping_pong else _core.bench_tcp_stream
        side = self._side
        seconds: float | Sequence[float] = run(
            side.endpoint, self._tcp.fileno(), message, order.times, side.first, LOOP_TIMEOUT_S
        )
        return seconds

    def close(self) -> None:
        self._tcp.close()
        self._side.endpoint.close()


def connect_tcp(link: Link) -> socket.socket:
    """A loopback connection between the two workers, and to nobody else: each names its own port."""
    if link.rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            link.exchange(server.getsockname()[1])
            connection, address = server.accept()
            if link.exchange(None)[1] != address[1]:
                raise ConnectionError("a stranger connected to the benchmark's TCP port: try again")
    else:
        port = link.exchange(None)[0]
        connection = socket.create_connection(("127.0.0.1", port))
        link.exchange(connection.getsockname()[1])
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection

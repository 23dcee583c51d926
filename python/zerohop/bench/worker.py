"""What each of the two worker processes of the benchmark does: carry out orders, one at a time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

import zerohop as zh
from zerohop import _core
from zerohop.bench.loops import LOOP_TIMEOUT_S, LOOPS, Side
from zerohop.bench.overhead import call_costs, warm_register_cost
from zerohop.bench.plan import BLOCK_TESTS, Order
from zerohop.local import Link


def work(
    link: Link, device: str | None, arena_nbytes: int, p2p: int = 0, memory: str = "empty"
) -> None:
    """Answers Orders, "facts", "call costs" and "warm register" until it gets None.

    memory: where the arena lies, "empty" (that of Endpoint.empty) or "numpy" (any array, registered).
    """
    with zh.Endpoint(device, p2p=p2p) as endpoint, connect_tcp(link) as connection:
        addresses = link.exchange(endpoint.address)
        peer = endpoint.connect(addresses[1 - link.rank])
        if memory == "numpy":
            arena = endpoint.register(np.empty(arena_nbytes, np.uint8))
        else:
            arena = endpoint.empty(arena_nbytes, "uint8")
        ball = np.asarray(arena)
        ball.fill(0)  # touches every page before any clock runs
        remote = link.exchange(arena.remote)[1 - link.rank]
        side = Side(link.rank == 0, endpoint, peer, arena, remote)
        while (order := link.order()) is not None:
            if order == "facts":
                route = peer.route(arena, remote)
                mtu = route.settings["mtu"]
                facts = {"device": endpoint.device, "route": route.kind, "reason": route.reason}
                link.answer({**facts, "mtu": mtu})
            elif order == "call costs":
                link.answer(call_costs(side) if side.first else None)
            elif order == "warm register":
                link.answer(warm_register_cost(side) if side.first else None)
            elif order.test.startswith("tcp_"):
                link.answer(_measure_tcp(side, connection, ball, order))
            else:
                link.answer(_measure(side, order))
        link.exchange(None)  # neither side closes while the other still finishes


def _measure(side: Side, order: Order) -> float | Sequence[float]:
    loops = LOOPS[order.driver]
    if order.test in BLOCK_TESTS:
        block = BLOCK_TESTS[order.test]
        return loops.write_many(side, block, order.nbytes // block, order.times)
    loop: Any = getattr(loops, order.test)
    seconds: float | Sequence[float] = loop(side, order.nbytes, order.times)
    return seconds


def _measure_tcp(
    side: Side, connection: socket.socket, ball: np.ndarray[Any, Any], order: Order
) -> float | Sequence[float]:
    message = ball[: order.nbytes]
    run = _core.bench_tcp_ping_pong if order.test == "tcp_latency" else _core.bench_tcp_stream
    seconds: float | Sequence[float] = run(
        side.endpoint, connection.fileno(), message, order.times, side.first, LOOP_TIMEOUT_S
    )
    return seconds


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

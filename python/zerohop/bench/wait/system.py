"""What the system has between two processes, from Python: a pipe each way, and a TCP connection over loopback."""

from __future__ import annotations

import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Sequence

from zerohop.bench.wait.rounds import ping_pong
from zerohop.bench.worker import connect_tcp
from zerohop.local import Link

POLLS = 8  # before each sched_yield
POLLED_S = 200e-6  # then a wait blocks


class Pipes:
    """Two named pipes: the processes are started apart."""

    def __init__(self, link: Link) -> None:
        self._first = link.rank == 0
        with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as folder:
            place = link.exchange(folder)[0]
            names = [f"{place}/{rank}" for rank in range(2)]
            if self._first:
                for name in names:
                    os.mkfifo(name)
            link.exchange(None)
            # Both ways at once: to open one end alone would wait for the other.
            self._pipes = [os.open(name, os.O_RDWR) for name in names]
            link.exchange(None)  # the folder goes

    def facts(self) -> dict[str, str]:
        return {}

    def latency(self, nbytes: int, times: int) -> Sequence[float]:
        out, back = self._pipes if self._first else self._pipes[::-1]
        ball = bytes(nbytes)
        return ping_pong(
            self._first, lambda: os.write(out, ball), lambda: os.read(back, nbytes), times
        )

    def close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)


class Tcp:
    """`latency` waits in recv(); `yielding_latency` polls first, and gives the core to others after every POLLS."""

    def __init__(self, link: Link) -> None:
        self._first = link.rank == 0
        self._socket = connect_tcp(link)

    def facts(self) -> dict[str, str]:
        return {}

    def latency(self, nbytes: int, times: int) -> Sequence[float]:
        ball, landing, connection = bytes(nbytes), bytearray(nbytes), self._socket
        return ping_pong(
            self._first,
            lambda: connection.send(ball),
            lambda: connection.recv_into(landing),
            times,
        )

    def yielding_latency(self, nbytes: int, times: int) -> Sequence[float]:
        ball, landing, connection = bytes(nbytes), bytearray(nbytes), self._socket
        look = _looks(connection)

        def receive() -> None:
            until = time.perf_counter() + POLLED_S
            while time.perf_counter() < until:
                for _ in range(POLLS):
                    if look():
                        connection.recv_into(landing)
                        return
                os.sched_yield()
            connection.recv_into(landing)

        return ping_pong(self._first, lambda: connection.send(ball), receive, times)

    def close(self) -> None:
        self._socket.close()


def _looks(connection: socket.socket) -> Callable[[], object]:
    """Whether something can be read: without an exception each time when not."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return lambda: poll.poll(0)

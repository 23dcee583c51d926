"""Partners on another host: `python -m support.far HOST PORT` there starts them for the tests here.

PORT 0 takes any that is free; the server prints which.

Each partner has three TCP connections. A test opens the first, for orders about the process; the server
and the process dial the others back, for its cases and for the link of each case. Whoever reaches these
ports can run code: they are for hosts that no stranger is joined to, such as two virtual machines.
"""

import os
import socket
import sys
import threading
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any

from support.link import DEFAULT_TIMEOUT, START_TIMEOUT
from support.spawned import Spawned

Place = tuple[str, int]  # IPv4 address and port
ORDERS = {
    "signal",
    "await_end",
    "last_words",
    "stacks",
    "discard",
}  # what FarProcess passes on to Spawned


def far_server() -> Place:
    """Where ZEROHOP_TEST_FAR=HOST:PORT says that the server listens."""
    host, _, port = os.environ["ZEROHOP_TEST_FAR"].rpartition(":")
    return host, int(port)


def dial(place: Place) -> Connection:
    return _connection(socket.create_connection(place, DEFAULT_TIMEOUT))


def _connection(connected: socket.socket) -> Connection:
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(connected.detach())


class Doorway:
    """A port at which one caller is awaited."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0))
        self._listener.settimeout(START_TIMEOUT)
        self.place: Place = self._listener.getsockname()

    def accept(self) -> Connection:
        connected, _ = self._listener.accept()
        return _connection(connected)

    def close(self) -> None:
        self._listener.close()


class FarProcess:
    """A Spawned of the other host, and `control`, which leads to it."""

    def __init__(self) -> None:
        connected = socket.create_connection(far_server(), DEFAULT_TIMEOUT)
        self.host = connected.getsockname()[0]  # of this side, as that one reaches it
        self._orders = _connection(connected)
        with closing(Doorway(self.host)) as doorway:
            self._orders.send(doorway.place)
            self.control = doorway.accept()
        self.pid: int = self._answer()  # over there

    def _answer(self) -> Any:
        assert self._orders.poll(START_TIMEOUT), "the server of far partners does not answer"
        return self._orders.recv()

    def _order(self, name: str, *arguments: Any) -> Any:
        self._orders.send((name, *arguments))
        return self._answer()

    def signal(self, number: int) -> None:
        self._order("signal", number)

    def await_end(self) -> None:
        self._order("await_end")

    def last_words(self) -> str:
        return str(self._order("last_words"))

    def stacks(self) -> str:
        return str(self._order("stacks"))

    def discard(self) -> None:
        self._order("discard")
        self._orders.close()


def serve(orders: Connection) -> None:
    """One partner, from its start to the end of the connection for orders."""
    with orders:
        with dial(orders.recv()) as control:
            process = Spawned("support.worker", control.fileno())
        try:
            orders.send(process.pid)
            with suppress(EOFError, ConnectionResetError):  # the test has ended
                while True:
                    name, *arguments = orders.recv()
                    assert name in ORDERS, name
                    orders.send(getattr(process, name)(*arguments))
        finally:
            process.discard()


def main() -> None:
    host, port = sys.argv[1:]
    with socket.create_server((host, int(port))) as listener:
        print(f"listening on port {listener.getsockname()[1]}", flush=True)
        while True:
            connected, _ = listener.accept()
            arguments = (_connection(connected),)
            threading.Thread(target=serve, args=arguments, daemon=True).start()


if __name__ == "__main__":
    main()

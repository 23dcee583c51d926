"""QEMU's machine protocol: orders to the machine itself, not to what runs in it."""

from __future__ import annotations

import json
import socket
from typing import Any

TIMEOUT = 30.0  # seconds, for an answer


class Qmp:
    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT)
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._greeted = False

    @classmethod
    def pair(cls) -> tuple[Qmp, socket.socket]:
        """A Qmp and the socket that QEMU is to inherit."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def order(self, execute: str, **arguments: Any) -> Any:
        """Sends one order and returns what QEMU returns. Raises RuntimeError if it refuses."""
        if not self._greeted:
            self._greeted = True
            self._lines.readline()  # the greeting
            self.order("qmp_capabilities")
        message = {"execute": execute, "arguments": arguments}
        self._connection.sendall(json.dumps(message).encode() + b"\n")
        while line := self._lines.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"QEMU refuses {execute}: {answer['error']['desc']}")
            if "return" in answer:  # everything else is an event
                return answer["return"]
        raise RuntimeError(f"QEMU ended before it answered {execute}")

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

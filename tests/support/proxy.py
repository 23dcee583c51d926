"""A TCP proxy between two endpoints that damages, cuts, withholds or records what passes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

# Called with the offset of a chunk in its direction's stream and the chunk; returns what to pass
# on, or None to close the connection.
Damage = Callable[[int, bytes], bytes | None]


def nothing(offset: int, chunk: bytes) -> bytes:
    return chunk


def flip(place: int) -> Damage:
    """Changes one bit of the byte at `place` of the stream."""

    def damage(offset: int, chunk: bytes) -> bytes:
        if not offset <= place < offset + len(chunk):
            return chunk
        at = place - offset
        return chunk[:at] + bytes([chunk[at] ^ 0x10]) + chunk[at + 1 :]

    return damage


def cut(place: int) -> Damage:
    """Closes the connection after `place` bytes."""

    def damage(offset: int, chunk: bytes) -> bytes | None:
        if offset >= place:
            return None
        return chunk[: place - offset]

    return damage


def withhold(place: int) -> Damage:
    """Passes `place` bytes on and swallows the rest, with the connection open."""
    return lambda offset, chunk: chunk[: max(0, place - offset)]


class Proxy:
    """Listens on `port` of the target's host and connects each caller to `target`."""

    def __init__(
        self, target: tuple[str, int], *, there: Damage = nothing, back: Damage = nothing
    ) -> None:
        self._target, self._there, self._back = target, there, back
        self.recorded: list[bytes] = []  # what the callers sent
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((target[0], 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=run, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                self._start(self._pump, near, far, self._there, self.recorded)
                self._start(self._pump, far, near, self._back, [])

    def _pump(
        self, source: socket.socket, sink: socket.socket, damage: Damage, record: list[bytes]
    ) -> None:
        offset = 0
        with suppress(OSError):  # either side has closed
            while chunk := source.recv(65536):
                record.append(chunk)
                passed = damage(offset, chunk)
                if passed is None:
                    break
                offset += len(chunk)
                sink.sendall(passed)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Proxy:  # noqa: PYI034  Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for one in self._sockets:
            one.close()

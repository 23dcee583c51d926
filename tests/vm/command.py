"""A command that runs in a guest, seen from the host."""

import threading
import time
from collections.abc import Callable

Sink = Callable[[int, bytes], None]  # stream (1 or 2), data


class CommandFailed(AssertionError):
    """A command in a guest failed, hung or died; the message has its output."""


class Command:
    """Collects what a command writes; every wait has a deadline."""

    def __init__(self, number: int, argv: list[str], send: Callable[..., None], sink: Sink | None):
        self.number, self.argv = number, argv
        self._send, self._sink = send, sink
        self._changed = threading.Condition()
        self._output: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._status: int | None = None
        self._lost = ""

    # The guest's reader thread calls these.
    def on_output(self, stream: int, data: bytes) -> None:
        if self._sink is not None:
            self._sink(stream, data)
        with self._changed:
            self._output[stream] += data
            self._changed.notify_all()

    def on_end(self, status: int | None, why: str = "") -> None:
        with self._changed:
            if self._status is None and not self._lost:
                self._status, self._lost = status, why
                self._changed.notify_all()

    @property
    def stdout(self) -> str:
        with self._changed:
            return self._output[1].decode(errors="replace")

    @property
    def stderr(self) -> str:
        with self._changed:
            return self._output[2].decode(errors="replace")

    @property
    def ended(self) -> bool:
        with self._changed:
            return self._status is not None or bool(self._lost)

    def write(self, data: bytes | None) -> None:
        """To its standard input; None ends it."""
        self._send(input=self.number, data=data)

    def kill(self, signal: int = 9) -> None:
        self._send(kill=self.number, signal=signal)

    def expect(self, text: str, timeout: float) -> str:
        """Waits until `text` stands in its output; returns all output up to then."""

        def look() -> bool:
            return text.encode() in self._output[1] or self._status is not None or bool(self._lost)

        with self._changed:
            self._changed.wait_for(look, timeout)
            if text.encode() in self._output[1]:
                return self._output[1].decode(errors="replace")
        raise CommandFailed(f"did not say {text!r} within {timeout} s\n{self.report()}")

    def wait(self, timeout: float) -> int:
        """Its exit status. Raises CommandFailed when it goes on, or the guest is lost."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None or self._lost, timeout)
            if self._status is not None:
                return self._status
            reason = self._lost or f"did not end within {timeout:.0f} s"
        raise CommandFailed(f"{reason}\n{self.report()}")

    def check(self, timeout: float) -> str:
        """Its standard output, when it has succeeded."""
        start = time.monotonic()
        if status := self.wait(timeout):
            took = time.monotonic() - start
            raise CommandFailed(f"exit status {status} after {took:.1f} s\n{self.report()}")
        return self.stdout

    def report(self) -> str:
        return f"$ {' '.join(self.argv)}\n{self.stdout}\n{self.stderr}"

"""A private pipe between a test and its partner, in which every wait has a deadline.

Both ends are inherited or handed over as descriptors, so nobody else can speak on it.
"""

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from support.patience import patient

DEFAULT_TIMEOUT = patient(20.0)  # seconds; long enough for a busy two-core machine
START_TIMEOUT = patient(40.0)  # seconds; where the other side may import NumPy or PyTorch first


class LinkClosed(Exception):
    """The other side has left: it ended, failed, or was killed."""


class LinkTimeout(Exception):
    """The other side said nothing in time."""


class Link:
    """Objects and barriers between a test and its partner."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, value: Any) -> None:
        try:
            self._connection.send(value)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise LinkClosed("the other side has closed the link") from error

    def recv(self, timeout: float = DEFAULT_TIMEOUT) -> Any:
        try:
            if not self._connection.poll(timeout):
                raise LinkTimeout(f"nothing came over the link within {timeout} s")
            return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise LinkClosed("the other side has closed the link") from error

    def meet(self, label: str = "here", timeout: float = DEFAULT_TIMEOUT) -> None:
        """A barrier: returns when both sides have come to `label`."""
        self.send(("meet", label))
        other = self.recv(timeout)
        assert other == ("meet", label), f"met {other!r} while waiting for {label!r}"

    def close(self) -> None:
        self._connection.close()


def until(condition: Callable[[], Any], what: str, timeout: float = 10.0) -> Any:
    """Asks `condition` again and again until it is true; fails after `timeout` seconds.

    For facts of the system that offer nothing to wait on (a refcount, /proc, a counter).
    """
    timeout = patient(timeout)
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {timeout} s: {what}"
        time.sleep(0.002)  # yields the CPU between two looks; the condition decides, not the time

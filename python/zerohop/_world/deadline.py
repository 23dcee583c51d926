"""The deadline of a call that waits in several steps."""

from __future__ import annotations

import time
from collections.abc import Iterator

SLICE = 0.25  # seconds after which a wait checks whether the awaited ranks live

_GRACE = 0.8  # seconds by which connections may delay a call in total
_FIRST_PAUSE = 1e-3  # seconds between two checks; it doubles
_LONGEST_PAUSE = 50e-3


class Deadline:
    """The deadline of a call with a timeout of `seconds`; even with 0 it may connect once. begin: by time.monotonic(); None: now."""

    def __init__(self, seconds: float, begin: float | None = None) -> None:
        self.end = (time.monotonic() if begin is None else begin) + seconds
        self._last = self.end + _GRACE

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.end - time.monotonic())

    @property
    def slice(self) -> float:
        """How long to wait before the next check."""
        return min(SLICE, self.left)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.end

    def to_connect(self) -> float:
        """Seconds for a connection that starts now."""
        return max(0.0, self._last - time.monotonic())

    def by_the_way(self) -> Deadline:
        """A deadline for secondary work of the call: it does not wait, and connects within both bounds."""
        made = Deadline(0.0)
        made._last = min(made._last, self._last)
        return made


def looks(end: float) -> Iterator[None]:
    """Yields whenever it is time to check: now, then repeatedly until `end` (time.monotonic()).

    For events without a notification, such as a new key in a store; the pauses leave the CPU to others.
    """
    pause = _FIRST_PAUSE
    while True:
        yield
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)

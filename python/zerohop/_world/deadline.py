"""When a call has to end, for what waits in several steps."""

from __future__ import annotations

import time
from collections.abc import Iterator

SLICE = 0.25  # seconds after which a wait looks whether those it waits for still live

_GRACE = 0.8  # seconds later than asked for that connections may make a call end, all together
_FIRST_PAUSE = 1e-3  # seconds between two looks; it doubles
_LONGEST_PAUSE = 50e-3


class Deadline:
    """A call that was given `seconds`: even with 0 it has time to connect, once. begin: by time.monotonic(); None: now."""

    def __init__(self, seconds: float, begin: float | None = None) -> None:
        self.end = (time.monotonic() if begin is None else begin) + seconds
        self._last = self.end + _GRACE

    @property
    def left(self) -> float:
        """Seconds, 0 at least."""
        return max(0.0, self.end - time.monotonic())

    @property
    def slice(self) -> float:
        """How long to wait before the next look."""
        return min(SLICE, self.left)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.end

    def to_connect(self) -> float:
        """Seconds for a connection that begins now."""
        return max(0.0, self._last - time.monotonic())

    def by_the_way(self) -> Deadline:
        """For what the call does beside its waiting: it waits for nothing, and connects within both bounds."""
        made = Deadline(0.0)
        made._last = min(made._last, self._last)
        return made


def looks(end: float) -> Iterator[None]:
    """Whenever it is time to look: now, then again and again until `end` (time.monotonic()).

    For what nobody tells, such as that a store has got a key: the look decides, the pause leaves the CPU to others.
    """
    pause = _FIRST_PAUSE
    while True:
        yield
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)

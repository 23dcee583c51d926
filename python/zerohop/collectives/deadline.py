"""The end of a wait, for what waits in several steps."""

from __future__ import annotations

import time

__all__ = ["SLICE", "Deadline"]

SLICE = 0.25  # seconds after which a wait looks whether those it waits for still live


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, 0 at least."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def slice(self) -> float:
        """How long to wait before the next look."""
        return min(SLICE, self.left)

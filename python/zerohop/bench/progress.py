"""The progress of a benchmark and the time left: a line that changes on a terminal, occasional lines elsewhere.

It goes to stderr, so that stdout has only the tables, and appears only after two seconds.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO, final

PATIENCE_S = 2.0
LINE_EVERY_S = 10.0
ERASE = "\r\x1b[K"  # of a terminal's line


@final
class Watch:
    """A context manager: `expect` sets the number of steps, `at` starts one.

    stream: used instead of stderr.
    """

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._begun_steps = time.monotonic()
        self._next = self._begun_steps + PATIENCE_S
        self._shown = False
        self._done, self._total = 0, 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown and self._terminal:
            self._stream.write(ERASE)

    def expect(self, steps: int) -> None:
        """The number of steps from here on; the time of earlier ones is ignored."""
        self._begun_steps = time.monotonic()
        self._done, self._total = 0, steps

    def at(self, what: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._shown = True
        far = f"{self._done} of {self._total}, {what}" if self._total else what
        said = f"{self._title}: {far}, {self._left(now)}".rstrip(", ")
        if self._terminal:
            said = f"{ERASE}{said[: shutil.get_terminal_size().columns - 1]}"
        else:
            self._next = now + LINE_EVERY_S
            said += "\n"
        self._stream.write(said)
        self._stream.flush()

    def advance(self) -> None:
        self._done += 1

    def _left(self, now: float) -> str:
        """Assumes that the remaining steps take as long as those done."""
        if not self._done:
            return ""
        seconds = (now - self._begun_steps) / self._done * (self._total - self._done)
        return (
            f"about {seconds / 60:.1f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
        )

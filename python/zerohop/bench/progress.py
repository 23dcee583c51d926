"""How far a benchmark is, and how long it still takes: a line that changes on a terminal, one now and then elsewhere.

On stderr, so that stdout has the tables alone, and not of what is done in two seconds.
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
    """A context manager: `expect` says how many steps there are, `at` which one begins.

    stream: in place of stderr.
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
        """So many from here on; what was before tells nothing of how long each takes."""
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
        """As if each of the steps left took as long as those that are done did."""
        if not self._done:
            return ""
        seconds = (now - self._begun_steps) / self._done * (self._total - self._done)
        return (
            f"about {seconds / 60:.1f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
        )

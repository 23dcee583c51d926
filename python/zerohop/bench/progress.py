"""How far a benchmark is, and how long it still takes: a bar on a terminal, a line now and then elsewhere.

Both go to stderr, so that stdout has the tables alone, and neither shows of what is done in two seconds.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

PATIENCE_S = 2.0
LINE_EVERY_S = 10.0


@final
class Watch:
    """A context manager: `expect` says how many steps there are, `at` which one begins.

    stream: in place of stderr.
    """

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        left = TextColumn("{task.fields[left]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), left)
        self._bar = Progress(*columns, console=Console(file=self._stream), transient=True)
        self._task = self._bar.add_task(title, total=None, left="", visible=False)
        self._begin = self._begun_steps = time.monotonic()
        self._next_line = self._begin
        self._done, self._total = 0, 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar.console.is_terminal:
            self._bar.stop()

    def expect(self, steps: int) -> None:
        """So many from here on; what was before tells nothing of how long each takes."""
        self._begun_steps = time.monotonic()
        self._done, self._total = 0, steps

    def at(self, what: str) -> None:
        now = time.monotonic()
        if now - self._begin < PATIENCE_S:
            return
        if self._bar.console.is_terminal:
            self._bar.start()
            self._bar.update(
                self._task,
                description=f"{self._title}: {what}",
                completed=self._done,
                total=self._total or None,
                left=self.left(),
                visible=True,
            )
        elif now >= self._next_line:
            self._next_line = now + LINE_EVERY_S
            far = f"{self._done} of {self._total}, {what}" if self._total else what
            said = f"{self._title}: {far}, {self.left()}".rstrip(", ")
            print(said, file=self._stream, flush=True)

    def advance(self) -> None:
        self._done += 1

    def left(self) -> str:
        """As if each of the steps left took as long as those that are done did."""
        if not self._done:
            return ""
        took = time.monotonic() - self._begun_steps
        seconds = took / self._done * (self._total - self._done)
        return (
            f"about {seconds / 60:.1f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
        )

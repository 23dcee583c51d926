"""The programs of zerohop.examples as they are run, and the processes that they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.link import until
from support.patience import patient


def example(
    name: str, *arguments: str, warnings: str = "error"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", warnings, "-m", f"zerohop.examples.{name}", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patient(100), check=False
    )


def rows_of(path: Path) -> dict[tuple[str, str, str], float]:
    """Of --json: values by test, who communicates, and metric."""
    _, *rows = json.loads(path.read_text())
    return {(row["test"], row["driver"], row["metric"]): row["value"] for row in rows}


class Running:
    """An example under way, which has said how far it is; in a process group of its own, as a shell has it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.line = process.stderr.readline()  # it comes after two seconds, or at the end
        self.ranks = ranks_of(process.pid)

    def end(self) -> tuple[int, str]:
        """Its exit status and the rest of stderr; of its ranks none is left."""
        _, errors = self.process.communicate(timeout=patient(20))
        until(lambda: not any(map(_runs, self.ranks)), "all ranks have ended")
        return self.process.returncode, errors


@contextmanager
def started(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"zerohop.examples.{name}", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def running(name: str, *arguments: str) -> Iterator[Running]:
    with started(name, *arguments) as process:
        yield Running(process)


def ranks_of(pid: int) -> list[int]:
    return [child for child in _children(pid) if "spawn_main" in _command(child)]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> Any:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()

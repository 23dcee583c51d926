"""A process that runs support.worker on this host: watched, signalled, asked where it is, put away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from support.link import DEFAULT_TIMEOUT, until

TESTS = Path(__file__).resolve().parent.parent


def environment_of() -> dict[str, str]:
    """Of a process that imports what lies beside this file."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


class Spawned:
    """Starts at once. `control` is the descriptor over which it takes its cases; it is inherited."""

    def __init__(self, control: int) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  discard() closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.worker", str(control)],
            pass_fds=[control],
            stdin=subprocess.DEVNULL,
            stderr=self._stderr,
            env=environment_of(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """Sends a signal; of those that stop and kill, returns when they have done so."""
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            until(lambda: is_stopped(self.pid), "the partner has stopped")
        if number == signal.SIGKILL:
            self.await_end()

    def await_end(self) -> None:
        self._process.wait(DEFAULT_TIMEOUT)

    def last_words(self) -> str:
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace")[-6000:]
        return f"partner process {self.pid}, exit status {self._process.poll()}\n{words}"

    def stacks(self) -> str:
        """Where every thread of a hanging partner is."""
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGUSR1)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # it does not end: this is the time it has to write
        return self.last_words()

    def discard(self) -> None:
        self._process.kill()
        self.await_end()
        self._stderr.close()


def is_stopped(pid: int) -> bool:
    """All its threads: the state is behind the name in parentheses (man 5 proc_pid_stat)."""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)

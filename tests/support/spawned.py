"""A process of this host that runs a module of the tests: watched, signalled, asked where it is, put away."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from support.link import DEFAULT_TIMEOUT, START_TIMEOUT, Link, LinkClosed, until

TESTS = Path(__file__).resolve().parent.parent


def environment_of() -> dict[str, str]:
    """Of a process that imports what lies beside this file."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


class Spawned:
    """`python -m MODULE CONTROL ARGUMENTS`, at once. control: a descriptor, which is inherited, as those in `more` are.

    enter: a command that starts it, such as nsenter.
    """

    def __init__(
        self,
        module: str,
        control: int,
        *arguments: object,
        more: Sequence[int] = (),
        enter: Sequence[str] = (),
    ) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  discard() closes it
        self._process = subprocess.Popen(
            [*enter, sys.executable, "-m", module, *map(str, (control, *more, *arguments))],
            pass_fds=[control, *more],
            stdin=subprocess.DEVNULL,
            stderr=self._stderr,
            env=environment_of(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> float:
        """Of those that stop and kill, returns when they have done so: at that time.monotonic()."""
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            until(lambda: is_stopped(self.pid), "the partner has stopped")
        if number == signal.SIGKILL:
            self.await_end()
        return time.monotonic()

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


class Worker(Spawned):
    """One that does what it is asked, a call at a time: its module hands the other end of `link` to obey()."""

    def __init__(self, module: str, *arguments: object, **options: Any) -> None:
        ours, theirs = Pipe()
        self.link = Link(ours)
        with theirs:
            super().__init__(module, theirs.fileno(), *arguments, **options)

    def tell(self, call: str, *arguments: Any) -> None:
        self.link.send((call, arguments))

    def answer(self, timeout: float = START_TIMEOUT) -> Any:
        """Of the last call that has not been answered; an exception is returned, too."""
        try:
            return self.link.recv(timeout)
        except LinkClosed as error:
            raise LinkClosed(self.last_words()) from error

    def ask(self, call: str, *arguments: Any) -> Any:
        """What the call returned, or raises what it raised."""
        self.tell(call, *arguments)
        value = self.answer()
        if isinstance(value, BaseException):
            raise value
        return value

    def discard(self) -> None:
        super().discard()
        self.link.close()


def obey(control: Connection, act: Callable[..., Any]) -> None:
    """Makes each call that comes, as act(name, *arguments), until the test has left."""
    with control, suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            name, arguments = control.recv()
            try:
                value = act(name, *arguments)
            except Exception as error:  # noqa: BLE001  the test looks at it
                value = error
            control.send(value)


def is_stopped(pid: int) -> bool:
    """All its threads: the state is behind the name in parentheses (man 5 proc_pid_stat)."""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)

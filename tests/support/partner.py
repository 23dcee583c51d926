"""Partners: the other side of a test, as a thread of this process or as a process.

`Partners` hands them out. A process that ended its case in good order is kept for the next one;
one that was killed, failed or hangs is not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import IO, Any

from support.case import Case, perform
from support.link import DEFAULT_TIMEOUT, START_TIMEOUT, Link

TESTS = Path(__file__).resolve().parent.parent


class PartnerFailed(AssertionError):
    """The partner raised, died or hung; the message has its traceback or its last words."""


class WorkerProcess:
    """A process running support.worker."""

    def __init__(self) -> None:
        self.control, theirs = Pipe()
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  discard() closes it
        paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=self.stderr,
                env=environment,
            )
        self._ready = False

    def start(self, case: Case, function: Callable[..., None], link: Connection) -> None:
        del function  # the process loads it by name
        if not self._ready:
            receive(self.control, START_TIMEOUT, self)
            self._ready = True
        self.control.send(case)
        with link:
            send_handle(self.control, link.fileno(), self.process.pid)

    def last_words(self) -> str:
        self.stderr.seek(0)
        words = self.stderr.read().decode(errors="replace")[-6000:]
        return f"partner process {self.process.pid}, exit status {self.process.poll()}\n{words}"

    def stacks(self) -> str:
        """Where every thread of a hanging partner is."""
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGUSR1)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # it does not end: this is the time it has to write
        return self.last_words()

    def discard(self) -> None:
        self.process.kill()
        self.process.wait(DEFAULT_TIMEOUT)
        self.control.close()
        self.stderr.close()


class WorkerThread:
    """The same in a thread of this process."""

    process = None

    def __init__(self) -> None:
        self.control, self._theirs = Pipe()
        self._thread: threading.Thread | None = None

    def start(self, case: Case, function: Callable[..., None], link: Connection) -> None:
        arguments = (case, function, self._theirs, Link(link))
        self._thread = threading.Thread(target=perform, args=arguments, daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        return "partner thread"

    def stacks(self) -> str:
        assert self._thread is not None
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "the thread has ended"

    def discard(self) -> None:
        self.control.close()  # a thread that waits to be released sees this and ends
        if self._thread is not None:
            self._thread.join(5.0)
        if self._thread is None or not self._thread.is_alive():
            self._theirs.close()


Worker = WorkerProcess | WorkerThread


def receive(control: Connection, timeout: float, worker: Worker) -> tuple[str, Any]:
    """The worker's next report; a failure, a death or a hang becomes PartnerFailed."""
    try:
        if not control.poll(timeout):
            raise PartnerFailed(f"the partner hangs ({timeout} s)\n{worker.stacks()}")
        kind, value = control.recv()
    except (EOFError, ConnectionResetError) as error:
        if worker.process is not None:
            worker.process.wait(DEFAULT_TIMEOUT)
        raise PartnerFailed(f"the partner died\n{worker.last_words()}") from error
    if kind == "failed":
        raise PartnerFailed(f"the partner failed:\n{value}")
    return kind, value


class Partners:
    """Makes partners and keeps the processes that are still good."""

    def __init__(self) -> None:
        self._idle: list[WorkerProcess] = []

    def take(self, mode: str) -> Worker:
        if mode == "thread":
            return WorkerThread()
        worker = self._idle.pop() if self._idle else WorkerProcess()
        if not self._idle:
            self._idle.append(WorkerProcess())  # starts while the test runs
        return worker

    def give_back(self, worker: Worker, good: bool) -> None:
        if good and isinstance(worker, WorkerProcess) and len(self._idle) < 4:
            self._idle.append(worker)
        else:
            worker.discard()

    def close(self) -> None:
        for worker in self._idle:
            worker.discard()
        self._idle.clear()

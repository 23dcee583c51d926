"""Partners: the other side of a test, as a thread of this process, as a process, or on another host.

`Partners` hands them out. A process that ended its case in good order is kept for the next one that has
the same environment; one that was killed, failed or hangs is not.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any

from support.case import VARIABLES, Case, perform
from support.far import Doorway, FarProcess
from support.link import START_TIMEOUT, Link
from support.spawned import Spawned, environment_of

# Processes that start while a test runs; where that takes long, and many tests kill theirs, more help.
SPARE = int(os.environ.get("ZEROHOP_TEST_SPARE", "1"))
# Of the environment, what a process need not have from its start: a case brings them, or they mean nothing.
BROUGHT = {*VARIABLES, "PYTEST_CURRENT_TEST"}


class PartnerFailed(AssertionError):
    """The partner raised, died or hung; the message has its traceback or its last words."""


class WorkerProcess:
    """A process running support.worker."""

    def __init__(self) -> None:
        self.environment = self.environment_now()
        self.control, theirs = Pipe()
        with theirs:
            self.process: Spawned | FarProcess = Spawned("support.worker", theirs.fileno())
        self._ready = False

    @staticmethod
    def environment_now() -> dict[str, str]:
        """What one that is begun now has for good."""
        return {name: value for name, value in environment_of().items() if name not in BROUGHT}

    def start(self, case: Case, function: Callable[..., None]) -> Connection:
        """Has it perform the case; returns the test's end of the link."""
        del function  # the process loads it by name
        if not self._ready:
            receive(self.control, START_TIMEOUT, self)
            self._ready = True
        return self._send(case)

    def _send(self, case: Case) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            self.control.send((case, None))
            send_handle(self.control, theirs.fileno(), self.process.pid)
        return ours

    def last_words(self) -> str:
        return self.process.last_words()

    def stacks(self) -> str:
        return self.process.stacks()

    def discard(self) -> None:
        self.process.discard()
        self.control.close()


class WorkerFar(WorkerProcess):
    """The same on another host (support.far)."""

    @staticmethod
    def environment_now() -> dict[str, str]:
        return {}  # that of its server, whatever is set here

    def __init__(self) -> None:
        self.environment = self.environment_now()
        self._far = self.process = FarProcess()
        self.control = self._far.control
        self._ready = False

    def _send(self, case: Case) -> Connection:
        with closing(Doorway(self._far.host)) as doorway:
            self.control.send((case, doorway.place))
            return doorway.accept()


class WorkerThread:
    """The same in a thread of this process."""

    process = None

    def __init__(self) -> None:
        self.control, self._theirs = Pipe()
        self._thread: threading.Thread | None = None

    def start(self, case: Case, function: Callable[..., None]) -> Connection:
        ours, theirs = Pipe()
        arguments = (case, function, self._theirs, Link(theirs))
        self._thread = threading.Thread(target=perform, args=arguments, daemon=True)
        self._thread.start()
        return ours

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
            worker.process.await_end()
        raise PartnerFailed(f"the partner died\n{worker.last_words()}") from error
    if kind == "failed":
        raise PartnerFailed(f"the partner failed:\n{value}")
    return kind, value


MODES: dict[str, type[WorkerThread | WorkerProcess]] = {
    "thread": WorkerThread,
    "process": WorkerProcess,
    "far": WorkerFar,
}


class Partners:
    """Makes partners and keeps the processes that are still good."""

    def __init__(self) -> None:
        self._idle: dict[type, list[WorkerProcess]] = {}

    def take(self, mode: str) -> Worker:
        make = MODES[mode]
        if make is WorkerThread:
            return make()
        idle = self._idle.setdefault(make, [])
        now = make.environment_now()
        for other in [each for each in idle if each.environment != now]:
            idle.remove(other)
            other.discard()
        worker = idle.pop() if idle else make()
        while len(idle) < SPARE:
            idle.insert(0, make())  # the last in the list is the readiest
        return worker

    def give_back(self, worker: Worker, good: bool) -> None:
        if isinstance(worker, WorkerProcess):
            idle = self._idle[type(worker)]
            if good and len(idle) < 4 + SPARE:
                return idle.append(worker)
        worker.discard()

    def close(self) -> None:
        for idle in self._idle.values():
            for worker in idle:
                worker.discard()
        self._idle.clear()

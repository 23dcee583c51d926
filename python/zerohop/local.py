"""Worker processes on this machine: the process that starts them gives orders, watches and reaps them.

`zerohop bench`, `doctor` and `verify` are jobs of a few processes on one host. The parent holds one pipe to
each worker and nothing else. Addresses (which contain a secret) go from worker to worker through the
parent over these pipes, and a worker that dies, fails or falls silent ends the job at once.

    def work(link, name):                       # a module-level function: the worker imports it
        everyone = link.exchange(name)          # all-gather, and with it a barrier
        return everyone[link.rank - 1]

    with Ranks(work, 2, "x") as ranks:
        ranks.results()                         # what each worker returned, or RankFailed
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

SILENCE_S = 120.0  # a job fails if no worker sends anything for so long
KILLED_S = 0.5  # how long after its peers' failures the death of a worker may be noticed
EXIT_S = 15.0  # time to exit after the result


class RankFailed(RuntimeError):
    """One worker ended the job: it raised, was killed, or all workers fell silent."""

    def __init__(self, rank: int | None, reason: str) -> None:
        super().__init__(reason if rank is None else f"rank {rank} {reason}")
        self.rank = rank


class Link:
    """The worker's end of the pipe."""

    def __init__(self, rank: int, size: int, pipe: connection.Connection[Any, Any]) -> None:
        self.rank = rank
        self.size = size
        self._pipe = pipe
        self._orders: deque[Any] = deque()  # orders that arrived during an exchange

    def exchange(self, value: Any) -> list[Any]:
        """Gives `value` to every rank and returns theirs in rank order; every rank must call it."""
        self._pipe.send(("exchange", value))
        while True:
            word, content = self._pipe.recv()
            if word == "gathered":
                gathered: list[Any] = content
                return gathered
            self._orders.append(content)

    def report(self, value: Any) -> None:
        """Reports progress to the parent, which also keeps a long job from counting as silent."""
        self._pipe.send(("report", value))

    def order(self) -> Any:
        """Waits for the parent's next `Ranks.tell` or `Ranks.ask`; reply to the latter with `answer`."""
        if self._orders:
            return self._orders.popleft()
        _, order = self._pipe.recv()
        return order

    def answer(self, value: Any) -> None:
        self._pipe.send(("answer", value))


def run_worker(
    function: Callable[..., Any],
    rank: int,
    size: int,
    pipe: connection.Connection[Any, Any],
    arguments: tuple[Any, ...],
) -> None:
    """The main function of a worker."""
    # Ctrl-C reaches the whole process group; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    try:
        pipe.send(("result", function(Link(rank, size, pipe), *arguments)))
    except Exception as error:
        summary = f"{type(error).__name__}: {error}"
        with suppress(OSError):  # the parent may be gone
            pipe.send(("error", (summary, traceback.format_exc())))
        raise SystemExit(1) from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defers Ctrl-C to its end. Processes started within inherit the blocked signal until they are workers.

    Blocking it in this thread is not enough to defer it: the kernel delivers it to another thread, and Python to the main one.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handler = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread() and handler is not None
    came: list[int] = []
    if here:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        if here:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if came:
            signal.raise_signal(signal.SIGINT)


@dataclass
class Rank:
    process: Any  # a multiprocessing.Process, or what has its pid, exitcode, join() and kill()
    pipe: connection.Connection[Any, Any]
    inbox: dict[str, Any] = field(default_factory=dict)  # one "exchange", "answer", "result" each


class Ranks:
    """`size` worker processes that each run `function(link, *arguments)`.

    A context manager: leaving it ends every worker that still runs. Arguments, reports, answers and
    results travel by pickle between these processes only.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        size: int,
        *arguments: Any,
        silence: float = SILENCE_S,
        on_report: Callable[[int, Any], None] | None = None,
    ) -> None:
        self._silence = silence
        self._on_report = on_report
        self._ranks: list[Rank] = []
        # Not fork: it would copy the locks of our threads, and not the threads that release them.
        context = multiprocessing.get_context("spawn")
        try:
            for rank in range(size):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=run_worker,
                    args=(function, rank, size, theirs, arguments),
                    name=f"zerohop rank {rank}",
                    daemon=True,
                )
                with _uninterrupted():
                    process.start()
                    theirs.close()  # so that the worker's death is an end of file here
                    self._ranks.append(Rank(process, ours))
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    @property
    def pids(self) -> list[int]:
        return [rank.process.pid or 0 for rank in self._ranks]

    def send_signal(self, number: signal.Signals) -> None:
        """Sends it to every rank that has not ended."""
        for rank in self._ranks:
            if rank.process.exitcode is None and rank.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(rank.process.pid, number)

    def tell(self, order: Any) -> None:
        """Gives `order` to every rank, for its next `Link.order`."""
        for rank in range(len(self._ranks)):
            self._send(rank, ("order", order))

    def ask(self, order: Any, silence: float | None = None) -> list[Any]:
        """Gives `order` to every rank and returns their answers in rank order. silence: from now on."""
        self._silence = self._silence if silence is None else silence
        self.tell(order)
        return self._gather("answer")

    def results(self) -> list[Any]:
        """The return value of each rank, in rank order; their processes have exited by then."""
        results = self._gather("result")
        for rank, worker in enumerate(self._ranks):
            worker.process.join(EXIT_S)
            if worker.process.exitcode is None:
                raise RankFailed(rank, f"finished but did not exit within {EXIT_S:.0f} s")
        return results

    def _send(self, rank: int, message: tuple[str, Any]) -> None:
        try:
            self._ranks[rank].pipe.send(message)
        except ConnectionError:
            while True:  # its last messages end with its reason, or with end of file
                self._receive(rank)

    def _gather(self, word: str) -> list[Any]:
        while not all(word in worker.inbox for worker in self._ranks):
            self._step()
            if all("exchange" in worker.inbox for worker in self._ranks):
                gathered = [worker.inbox.pop("exchange") for worker in self._ranks]
                for rank in range(len(self._ranks)):
                    self._send(rank, ("gathered", gathered))
        return [worker.inbox.pop(word) for worker in self._ranks]

    def _step(self) -> None:
        """Takes every message that is there; waits for the first, but not longer than the silence limit."""
        running = [rank for rank, worker in enumerate(self._ranks) if "result" not in worker.inbox]
        ready = connection.wait([self._ranks[rank].pipe for rank in running], self._silence)
        if not ready:
            whose = ", ".join(map(str, running))
            raise RankFailed(
                None, f"no message from rank {whose} for {self._silence:.0f} s: gave up"
            )
        for rank in running:
            if self._ranks[rank].pipe in ready:
                self._receive(rank)

    def _receive(self, rank: int) -> None:
        worker = self._ranks[rank]
        try:
            word, value = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(EXIT_S)
            raise self._death(rank) from None
        if word == "error":
            summary, trace = value
            failure = RankFailed(rank, f"failed: {summary}")
            failure.__cause__ = RuntimeError(f"in rank {rank}\n{trace}")
            raise self._killed_other(rank) or failure
        if word == "report":
            if self._on_report is not None:
                self._on_report(rank, value)
        else:
            worker.inbox[word] = value

    def _killed_other(self, complaining: int) -> RankFailed | None:
        """Finds a killed rank that made others fail, even if they reported first. A rank that has reported
        why it fails may be killed as well, by the things it cannot clean up."""
        until = time.monotonic() + KILLED_S
        while time.monotonic() < until:
            for rank, worker in enumerate(self._ranks):
                exitcode = worker.process.exitcode
                killed = exitcode is not None and exitcode < 0
                if killed and rank != complaining:
                    return self._death(rank)
            time.sleep(0.01)
        return None

    def _death(self, rank: int) -> RankFailed:
        """The error for a worker that has closed its pipe."""
        return RankFailed(rank, _how_it_ended(self._ranks[rank].process.exitcode))

    def _kill(self) -> None:
        for worker in self._ranks:
            if worker.process.exitcode is None:
                worker.process.kill()
        deadline = time.monotonic() + EXIT_S
        for worker in self._ranks:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.pipe.close()


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None:
        return "closed its pipe but is still running"
    if exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = "; the kernel does this when memory runs out" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"exited with status {exitcode} before it finished"

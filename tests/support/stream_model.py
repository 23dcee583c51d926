"""A model of two processes whose streams write, notify and wait, with no GPU and no clock.

What can move does. Time passes only when nobody can: then the bounds of the waits that have begun are
over. The processes are two threads of the test.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zerohop as zh

PATIENCE = 30.0  # seconds that a test waits for a thread which does not block in the model


class Transfer:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.done = False
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> bool:
        self.done, self.error = True, error
        return True

    def wait(self) -> None:
        self._model.block(lambda: self.done)
        if self.error:
            raise self.error


class Stream:
    """What it has to do: each is called until it returns True; expired: its bound is over."""

    def __init__(self, process: Process, number: int) -> None:
        self._model = process.model
        self._number = number
        self.todo: deque[Callable[[bool], bool]] = deque()

    def __int__(self) -> int:
        return self._number

    def event(self) -> list[bool]:
        happened: list[bool] = []
        self.todo.append(lambda expired: happened.append(True) or True)
        return happened

    def wait(self, seconds: float) -> None:
        self._model.block(lambda: not self.todo)

    def seconds_between(self, begin: list[bool], end: list[bool]) -> float:
        assert begin == end == [True]
        return 1.28


class Process:
    """Its Endpoint, its Peer, its GPU and its link in one."""

    def __init__(self, model: Model, rank: int) -> None:
        self.model = model
        self.rank = rank
        self.streams: list[Stream] = []
        self.cpu = Stream(self, -1)
        self.board: dict[int, int] = {}
        self.ended: list[str] = []  # writes and waits
        self.ended_before_lasting: list[str] | None = None  # before the first wait that took time
        self.writing = 0
        self.loses: set[int] = set()  # slots: what this process puts there does not arrive

    @property
    def other(self) -> Process:
        return self.model.processes[1 - self.rank]

    def stream(self) -> Stream:
        self.streams.append(Stream(self, len(self.streams)))
        return self.streams[-1]

    def reset_notify(self, slot: int) -> None:
        self.board.pop(slot, None)

    def write(self, source: Any, target: Any, notify: tuple[int, int], stream: int) -> Transfer:
        transfer = Transfer(self.model)

        def act(expired: bool) -> bool:
            self.ended.append(f"write {notify[0]} in {stream}")
            self.writing -= 1
            self._put(*notify)
            return transfer.end()

        self.writing += 1
        self.streams[stream].todo.append(act)
        return transfer

    def notify(self, slot: int, value: int) -> Transfer:
        """By the CPU, behind every write before it: also those in streams."""
        transfer = Transfer(self.model)

        def act(expired: bool) -> bool:
            if self.writing:
                return False
            self._put(slot, value)
            return transfer.end()

        self.cpu.todo.append(act)
        return transfer

    def _put(self, slot: int, value: int) -> None:
        if slot not in self.loses:
            self.other.board[slot] = value

    def wait_notify(self, slot: int, timeout: float, stream: int) -> Transfer:
        transfer = Transfer(self.model)

        def act(expired: bool) -> bool:
            if self.board.pop(slot, 0):
                self.ended.append(f"wait {slot}")
                return transfer.end()
            if self.ended_before_lasting is None:
                self.ended_before_lasting = list(self.ended)
            return expired and transfer.end(zh.TransferTimeout(f"slot {slot} did not come"))

        self.streams[stream].todo.append(act)
        return transfer

    def exchange(self, value: Any) -> list[Any]:
        return self.model.exchange(self.rank, value)


class Model:
    def __init__(self) -> None:
        self.processes = [Process(self, rank) for rank in range(2)]
        self._changed = threading.Condition()
        self._blocked: list[Callable[[], bool]] = []
        self._said: list[list[Any]] = [[], []]

    def _streams(self) -> Iterator[Stream]:
        for process in self.processes:
            yield from (*process.streams, process.cpu)

    def _move(self, expired: bool = False) -> bool:
        """Whether anything could."""
        moved = False
        for stream in self._streams():
            if stream.todo and stream.todo[0](expired):
                stream.todo.popleft()
                moved = True
        return moved

    def block(self, done: Callable[[], bool]) -> None:
        """Until `done`; time passes where both processes are blocked for good."""
        with self._blocking(done):
            while True:
                while self._move():
                    self._changed.notify_all()
                if done():
                    return
                if len(self._blocked) == 2 and not any(is_done() for is_done in self._blocked):
                    assert self._move(expired=True), "both processes wait for ever"
                    self._changed.notify_all()
                else:
                    assert self._changed.wait(PATIENCE), "the other process has ended"

    @contextmanager
    def _blocking(self, done: Callable[[], bool]) -> Iterator[None]:
        with self._changed:
            self._blocked.append(done)
            try:
                yield
            finally:
                self._blocked.remove(done)
                self._changed.notify_all()

    def exchange(self, rank: int, value: Any) -> list[Any]:
        mine, theirs = self._said[rank], self._said[1 - rank]
        mine.append(value)
        turn = len(mine)
        self.block(lambda: len(theirs) >= turn)
        both = [value, theirs[turn - 1]]
        return both if rank == 0 else both[::-1]

    def run(self, act: Callable[[Process], Any]) -> list[Any]:
        """What `act` returns for each process, or the exception that it raises."""
        results: list[Any] = [None, None]

        def work(process: Process) -> None:
            try:
                results[process.rank] = act(process)
            except Exception as error:  # noqa: BLE001  the test judges it
                results[process.rank] = error

        threads = [threading.Thread(target=work, args=(p,)) for p in self.processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

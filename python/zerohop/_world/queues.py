"""A queue of a Segment: the operations that one wait(queue) completes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from zerohop import _core
from zerohop.errors import Error, TransferTimeout

DEPTH = 1024  # operations in flight in a queue; the next one waits for the oldest
MOST_QUEUES = 16


class Queue:
    """Transfers in the order of their posting. Any number of threads may post and wait.

    what: its name in messages, "queue 3 of segment 'x'". name: adds a rank to an error, as Membership.named().
    """

    def __init__(
        self,
        what: str,
        name: Callable[[Error, int, str], Error],
        depth: int = DEPTH,
    ) -> None:
        self._what, self._depth, self._name = what, depth, name
        self._posted: deque[tuple[int, _core.Transfer]] = deque()  # target rank and transfer
        self._failure: Error | None = None  # the first one that wait() has not raised yet
        self._lock = threading.Lock()  # protects both; never held while waiting

    def __len__(self) -> int:
        """Operations that no wait() has completed yet; some may have ended."""
        return len(self._posted)

    def make_room(self, timeout: float) -> None:
        """Waits until another operation may be posted. Raises TransferTimeout after `timeout` seconds.

        wait() raises the failures that this finds.
        """
        if len(self._posted) < self._depth:
            return
        end = time.monotonic() + timeout
        while (oldest := self._oldest()) is not None:
            full = len(self._posted) >= self._depth
            if not full and not oldest[1].done:
                return
            self._finish(oldest, end)

    def add(self, rank: int, transfer: _core.Transfer) -> None:
        self._posted.append((rank, transfer))

    def wait(self, timeout: float) -> None:
        """Completes the operations posted before the call. Raises TransferTimeout, or the first failure."""
        end = time.monotonic() + timeout
        for _ in range(len(self._posted)):
            oldest = self._oldest()
            if oldest is None:
                break
            self._finish(oldest, end)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _oldest(self) -> tuple[int, _core.Transfer] | None:
        with self._lock:
            return self._posted[0] if self._posted else None

    def _finish(self, posted: tuple[int, _core.Transfer], end: float) -> None:
        """Waits for it, takes it out of the queue and keeps its failure."""
        rank, transfer = posted
        try:
            failure = _outcome(transfer, max(0.0, end - time.monotonic()))
        except TransferTimeout:
            raise TransferTimeout(
                f"{self._what}: an operation with rank {rank} is still in flight, and {len(self) - 1} "
                "behind it; they continue: wait again",
                effect="all",
            ) from None
        with self._lock:
            if self._posted and self._posted[0] is posted:  # else another thread was faster
                self._posted.popleft()
                if failure is not None and self._failure is None:
                    self._failure = self._name(failure, rank, f"{self._what}, ")


def _outcome(transfer: _core.Transfer, timeout: float) -> Error | None:
    """Its error, None if it succeeded. Raises TransferTimeout if it has not ended."""
    try:
        transfer.wait(timeout)
        return None
    except TransferTimeout:
        if not transfer.done:
            raise
    except Error as error:
        return error
    try:
        transfer.wait(0)  # it has just ended, or its own timeout ended it
    except Error as error:
        return error
    return None

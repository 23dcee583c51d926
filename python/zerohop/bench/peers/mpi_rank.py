"""What each of the two ranks does that `zerohop bench host --vs mpi` starts by mpirun: see mpi.py."""

from __future__ import annotations

import importlib
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zerohop.bench.peers.mpi_orders import mpi_facts, serve
from zerohop.bench.plan import window

TAG = 7


class Rank:
    def __init__(self, arena_nbytes: int) -> None:
        self.mpi: Any = importlib.import_module("mpi4py.MPI")
        self.world = self.mpi.COMM_WORLD
        self.rank = int(self.world.rank)
        self.first = self.rank == 0
        self._other = 1 - self.rank
        half = arena_nbytes // 2
        # Where MPI likes its memory to be, for it to be reached by the other process's stores.
        self._window = self.mpi.Win.Allocate(half, 1, comm=self.world)
        self._landing = np.frombuffer(self._window.tomemory(), np.uint8)
        self._landing.fill(0)
        self._outbox, self._inbox = np.zeros(half, np.uint8), np.zeros(half, np.uint8)
        self._window.Lock_all()
        self.world.Barrier()

    def close(self) -> None:
        self._window.Unlock_all()
        self._window.Free()

    def facts(self) -> dict[str, str]:
        return mpi_facts(self.mpi)

    def send_latency(self, nbytes: int, times: int) -> Sequence[float]:
        send, recv, clock = self.world.Send, self.world.Recv, time.perf_counter
        outbox, inbox, other = self._outbox[:nbytes], self._inbox[:nbytes], self._other
        seconds = []
        for _ in range(times):
            begin = clock()
            if self.first:
                send(outbox, other, TAG)
            recv(inbox, other, TAG)
            if not self.first:
                send(outbox, other, TAG)
            seconds.append((clock() - begin) / 2)
        return seconds

    def send(self, nbytes: int, times: int) -> float:
        act = self.world.Isend if self.first else self.world.Irecv
        array = (self._outbox if self.first else self._inbox)[:nbytes]
        pending: deque[Any] = deque()
        begin = time.perf_counter()
        for _ in range(times):
            if len(pending) == window(nbytes):
                pending.popleft().Wait()
            pending.append(act(array, self._other, TAG))
        for request in pending:
            request.Wait()
        self.world.Barrier()  # until the later of the two ends is done
        return time.perf_counter() - begin

    def write(self, nbytes: int, times: int) -> float:
        return self._one_sided(self._window.Put, self._outbox[:nbytes], nbytes, times)

    def read(self, nbytes: int, times: int) -> float:
        return self._one_sided(self._window.Get, self._inbox[:nbytes], nbytes, times)

    def _one_sided(
        self, act: Callable[..., object], array: np.ndarray[Any, Any], nbytes: int, times: int
    ) -> float:
        if not self.first:
            return 0.0
        target = [0, nbytes, self.mpi.BYTE]
        width = window(nbytes)
        begin = time.perf_counter()
        for number in range(1, times + 1):
            act([array, self.mpi.BYTE], self._other, target)
            if number % width == 0:
                self._window.Flush(self._other)
        self._window.Flush(self._other)
        return time.perf_counter() - begin


if __name__ == "__main__":
    serve(lambda: Rank(int(sys.argv[-1])))

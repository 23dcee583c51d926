"""One rank of MPI: the calls that `zerohop bench wait` times."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from zerohop.bench.peers.mpi_orders import mpi_facts, serve
from zerohop.bench.wait.rounds import Call, Job, ping_pong


class MpiJob(Job):
    def __init__(self) -> None:
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        self.rank, self.size = int(self._world.rank), int(self._world.size)

    def facts(self) -> dict[str, str]:
        return mpi_facts(self._mpi)

    def latency(self, nbytes: int, times: int) -> Sequence[float]:
        ball, other, world = np.zeros(nbytes, np.uint8), 1 - self.rank, self._world
        return ping_pong(
            self.rank == 0, lambda: world.Send(ball, other), lambda: world.Recv(ball, other), times
        )

    def close(self) -> None: ...

    def barrier(self, nbytes: int) -> Call:
        return lambda number: self._world.Barrier()

    def exchange(self, nbytes: int) -> Call:
        array, out = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        to, source = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        return lambda number: self._world.Sendrecv(array, to, 0, out, source, 0)

    def all_to_all(self, nbytes: int) -> Call:
        parts, out = (np.zeros(self.size * nbytes, np.uint8) for _ in range(2))
        return lambda number: self._world.Alltoall(parts, out)

    def broadcast(self, nbytes: int) -> Call:
        array = np.zeros(nbytes, np.uint8)
        return lambda number: self._world.Bcast(array, root=number % self.size)

    def all_gather(self, nbytes: int) -> Call:
        array, out = np.zeros(nbytes, np.uint8), np.zeros(self.size * nbytes, np.uint8)
        return lambda number: self._world.Allgather(array, out)


if __name__ == "__main__":
    serve(MpiJob)

"""A World on the ranks of an MPI communicator: they exchange their addresses once, over it."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from zerohop import _core
from zerohop._world.deadline import looks
from zerohop._world.entries import boot_id
from zerohop._world.launch import Job
from zerohop.errors import Error, TransferTimeout

# Abandoned requests and their buffers: MPI may still use them.
_abandoned: list[Any] = []


class GatheredStore:
    """The value of each rank, for all ranks, once they have gathered."""

    def __init__(self) -> None:
        self.known: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self.known[key] = value

    def get(self, key: str) -> bytes | None:
        return self.known.get(key)

    def gather(self, group: Group) -> None:
        """Every rank calls it, or fail(). Raises the errors of Group.gather, and Error if a rank has called fail()."""
        [(key, value)] = self.known.items()
        self._fill(group, key.encode() + b"\n" + value)

    def fail(self, group: Group, why: str) -> None:
        """Called instead of gather(): the others raise Error."""
        with suppress(Error):
            self._fill(group, b"\n" + why.encode())

    def _fill(self, group: Group, own: bytes) -> None:
        for rank, given in enumerate(group.gather(own)):
            key, _, value = given.partition(b"\n")
            if not key:
                raise Error(
                    f"rank {rank} of {group.size} could not make its World: {_core.wire_text(value)}"
                )
            self.known[key.decode()] = value

    def __repr__(self) -> str:
        return "the addresses that the ranks of the communicator have exchanged"


class Group:
    """The part of an mpi4py communicator that is needed here. seconds: bound of each call; all ranks take part in it.

    Raises TypeError (not a communicator), ValueError (this process is not in it, or it has two groups).
    """

    def __init__(self, communicator: Any, seconds: float) -> None:
        if not all(hasattr(communicator, name) for name in ("Get_rank", "Iallgatherv", "Is_inter")):
            raise TypeError(
                f"comm must be a communicator of mpi4py, such as MPI.COMM_WORLD, not {type(communicator).__name__}"
            )
        if not communicator:
            raise ValueError(
                "comm is MPI.COMM_NULL: this process is not in the communicator, and so not in its World"
            )
        if communicator.Is_inter():
            raise ValueError(
                "comm is an intercommunicator: comm.Merge() makes a communicator of both groups"
            )
        self._communicator, self._seconds = communicator, seconds
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    def local_rank(self) -> int:
        """The number of this process on its host. Every rank calls it."""
        hosts = self.gather(boot_id().encode())
        return hosts[: self.rank].count(hosts[self.rank])

    def gather(self, value: bytes) -> list[bytes]:
        """The values of all ranks. Every rank calls it. Raises Error (from MPI), TransferTimeout (a rank does not call it)."""
        own = np.frombuffer(value, np.uint8)
        counts = np.empty(self.size, np.int64)
        self._finish("Iallgather", np.array([len(own)], np.int64), counts)
        ends = np.cumsum(counts)
        every = np.empty(int(ends[-1]), np.uint8)
        self._finish("Iallgatherv", own, (every, (counts, ends - counts)))
        return [part.tobytes() for part in np.split(every, ends[:-1])]

    def _finish(self, call: str, sent: Any, received: Any) -> None:
        mpi: Any = import_module("mpi4py.MPI")
        try:
            request = getattr(self._communicator, call)(sent, received)
            for _ in looks(time.monotonic() + self._seconds):
                if request.Test():
                    return
        except mpi.Exception as error:
            raise Error(
                f"MPI_{call} on rank {self.rank} of {self.size} failed: {error}: MPI itself does not work here, or a rank of it "
                "has ended"
            ) from error
        _abandoned.append((request, sent, received))
        raise TransferTimeout(
            f"not all {self.size} ranks of the communicator have called World.from_mpi in {self._seconds:g} s: every rank has to, "
            "as for MPI's own collectives; the communicator can no longer be used"
        )


def everyone(job: Job) -> Any:
    """MPI.COMM_WORLD of the job that mpirun has started. Raises Error: no mpi4py, no MPI, or another MPI."""
    try:
        mpi: Any = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise Error(
            f"mpirun has started this process, and its ranks find each other by mpi4py, which cannot be imported ({error}): "
            "pip install 'zerohop[mpi]', or use a directory, World.from_env(store=directory)"
        ) from error
    size = mpi.COMM_WORLD.Get_size()
    if size != job.size:
        library = mpi.Get_library_version().partition("\n")[0].strip()
        raise Error(
            f"mpirun has started {job.size} ranks, but mpi4py has loaded an MPI with {size} ranks ({library}): start the job with "
            "the mpirun of that MPI, or make mpi4py load the other one (MPI4PY_MPIABI, MPI4PY_LIBMPI)"
        )
    return mpi.COMM_WORLD

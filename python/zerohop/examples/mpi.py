"""The World of a job that mpirun has started: its ranks tell each other their addresses by mpi4py."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from zerohop.examples.failures import Stopped
from zerohop.world import World

__all__ = ["mpi_size", "open_world"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # set by Open MPI; by MPICH and what comes from it


def mpi_size(environment: Mapping[str, str]) -> int | None:
    """Ranks of the job that an mpirun has started this process for; None: none has."""
    sizes = [environment[name] for name in _SIZES if environment.get(name, "").isdecimal()]
    return int(sizes[0]) if sizes else None


class GatheredStore:
    """What each rank has set, for all, once they have gathered."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self._known[key] = value

    def get(self, key: str) -> bytes | None:
        return self._known.get(key)

    def gather(self, communicator: Any) -> None:
        """Every rank calls it."""
        for known in communicator.allgather(self._known):
            self._known.update(known)


def open_world() -> World:
    """Every rank calls it. Raises Stopped (no mpi4py, or no MPI that it can load) and what World raises."""
    try:
        mpi: Any = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise Stopped(
            f"mpirun has started this process, and its ranks find each other by mpi4py, which does not load ({error}): "
            "pip install 'zerohop[mpi]'"
        ) from error
    everyone, store = mpi.COMM_WORLD, GatheredStore()
    local_rank = everyone.Split_type(mpi.COMM_TYPE_SHARED).Get_rank()
    try:
        return World(store, everyone.Get_rank(), everyone.Get_size(), local_rank=local_rank)
    finally:
        store.gather(everyone)  # of one that has failed, too: the others do not wait for it here

"""The launcher's environment variables, and the store where its ranks meet."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

from zerohop._world.deadline import looks
from zerohop._world.store import Store, open_store
from zerohop.errors import Error, TransferTimeout

PATIENCE = 300.0  # default seconds for all ranks to start
_MOST_PORT = 65535
_MEETING = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launcher:
    """Its variables. needs: those that identify it. mpi: its ranks are those of MPI."""

    name: str
    rank: str
    size: str
    local_rank: str
    needs: tuple[str, ...] = ()
    mpi: bool = False

    def has_started(self, environment: Mapping[str, str]) -> bool:
        return all(environment.get(name) for name in (self.rank, self.size, *self.needs))


# The first match counts: mpirun may run within a job of Slurm. SLURM_STEP_NUM_TASKS is set by srun
# only (man srun, output environment variables), not in a batch script.
LAUNCHERS = (
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", needs=_MEETING),
    Launcher(
        "mpirun (Open MPI)",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        mpi=True,
    ),
    Launcher("mpirun (MPICH)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", mpi=True),
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    Launcher("the environment", "RANK", "WORLD_SIZE", "LOCAL_RANK"),  # without a meeting place
)


@dataclass(frozen=True)
class Launched:
    """local_rank: None if unknown."""

    launcher: Launcher
    rank: int
    size: int
    local_rank: int | None


@dataclass(frozen=True)
class Job:
    """store: where the ranks meet; None: by MPI."""

    store: Store | None
    rank: int
    size: int


def launched(environment: Mapping[str, str]) -> Launched | None:
    """None: no known launcher has started this process. Raises ValueError for an invalid variable."""
    for launcher in LAUNCHERS:
        if launcher.has_started(environment):
            rank, size = _number(environment, launcher.rank), _number(environment, launcher.size)
            if not 0 <= rank < size:
                raise ValueError(
                    f"{launcher.rank}={rank} of {launcher.size}={size}: ranks go from 0 to {launcher.size} - 1"
                )
            return Launched(launcher, rank, size, _local_rank(environment, launcher))
    return None


def job_from_environment(
    environment: Mapping[str, str],
    seconds: float = PATIENCE,
    store: Store | str | os.PathLike[str] | None = None,
) -> Job:
    """Raises Error (no launcher, or no place where its ranks meet), ValueError (an invalid variable),
    TransferTimeout (the store does not answer within `seconds`).
    """
    meeting: Store | None = None
    agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if agent and store is None:
        # torchrun's agent runs a TCPStore, which outlives a restart of the ranks.
        attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        meeting = _torch_store(environment, seconds, f"attempt {attempt}", is_master=False)
    launch = launched(environment)
    if launch is None:
        raise Error(_no_launcher(environment))
    if store is not None:
        meeting = open_store(store)
    elif meeting is None and not launch.launcher.mpi:
        if not all(environment.get(name) for name in _MEETING):
            raise Error(
                f"{launch.launcher.name} has set the rank of this process, but not where the ranks meet: "
                "use World.from_env(store=directory), with a directory that all hosts see, or set MASTER_ADDR and MASTER_PORT, of the host of "
                "rank 0"
            )
        meeting = _torch_store(environment, seconds, "plain", is_master=launch.rank == 0)
    return Job(meeting, launch.rank, launch.size)


def _no_launcher(environment: Mapping[str, str]) -> str:
    """The error text: which variables were looked for, which of them are set, and the remedy."""
    *launchers, _ = LAUNCHERS  # the last has the same variables as the first
    looked = [f"{each.rank} and {each.size} ({each.name})" for each in launchers]
    names = [name for each in launchers for name in (each.rank, each.size)]
    found = [name for name in names if environment.get(name)]
    there = f"there is only {', '.join(found)}" if found else "none is set"
    return (
        f"no launcher has set the rank of this process: of {', '.join(looked)} {there}: start it with "
        "torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or set it in the program, "
        "World(directory, rank, size)"
    )


def _local_rank(environment: Mapping[str, str], launcher: Launcher) -> int | None:
    """From the launcher, else from another with the same number of ranks, such as srun in a job that sets RANK, too."""
    size = environment[launcher.size]
    for each in (launcher, *LAUNCHERS):
        # An outer launcher that starts one process per host does not count these ranks.
        same = each.has_started(environment) and environment[each.size] == size
        if same and environment.get(each.local_rank):
            return _number(environment, each.local_rank)
    return None


def _torch_store(
    environment: Mapping[str, str], seconds: float, prefix: str, *, is_master: bool
) -> Any:
    place = _text(environment, "MASTER_ADDR"), _number(environment, "MASTER_PORT")
    if not 1 <= place[1] <= _MOST_PORT:
        raise ValueError(f"MASTER_PORT={place[1]} is not a port: ports go from 1 to {_MOST_PORT}")
    try:
        distributed: Any = import_module("torch.distributed")
    except ImportError as error:
        raise Error(
            "ranks that find each other at MASTER_ADDR need PyTorch's store, and PyTorch is not installed: install it, "
            "or let them meet in a directory, World.from_env(store=directory) or World(directory, rank, size)"
        ) from error
    if not is_master:
        _await_answer(place, seconds)
    # Several stores in one process share the port, as torch.distributed may have one there.
    store = distributed.TCPStore(
        *place,
        is_master=is_master,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=timedelta(seconds=seconds),
    )
    return distributed.PrefixStore(f"zerohop, {prefix}", store)


def _await_answer(place: tuple[str, int], seconds: float) -> None:
    """Returns once a process listens there: the store's own attempts ignore any bound."""
    end = time.monotonic() + seconds
    refusal: OSError | None = None
    for _ in looks(end):
        try:
            socket.create_connection(place, max(0.1, end - time.monotonic())).close()
        except OSError as error:
            refusal = error
        else:
            return
    raise TransferTimeout(
        f"the store of the job did not answer at MASTER_ADDR={place[0]}, MASTER_PORT={place[1]} in {seconds:g} s "
        f"({refusal}): start the process that runs it, rank 0 or the launcher, or give a longer timeout"
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise ValueError(f"the launcher has not set {name}")
    return value


def _number(environment: Mapping[str, str], name: str) -> int:
    text = _text(environment, name)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a whole number") from None

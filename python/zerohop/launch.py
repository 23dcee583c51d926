"""How launchers tell a process its rank: one function for each, which knows its variables.

Each returns None where its launcher did not start this process.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

from zerohop.bound import looks
from zerohop.errors import TransferTimeout
from zerohop.store import Store

__all__ = ["Job", "job_from_environment"]

_PATIENCE = 300.0  # seconds for the process that runs the store to start, where none are given
_MOST_PORT = 65535


@dataclass(frozen=True)
class Job:
    store: Store
    rank: int
    size: int
    local_rank: int


def job_from_environment(environment: Mapping[str, str], seconds: float = _PATIENCE) -> Job:
    """Raises RuntimeError where no launcher has said anything, ValueError for a variable that says nothing,
    TransferTimeout where the store does not answer within `seconds`.
    """
    for launcher in LAUNCHERS:
        job = launcher(environment, seconds)
        if job is not None:
            return job
    raise RuntimeError(
        "no launcher has told this process its rank: start it with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT, or say it in the program, World(directory, rank, size)"
    )


def torchrun(environment: Mapping[str, str], seconds: float) -> Job | None:
    """Its agent runs a TCPStore at MASTER_ADDR and MASTER_PORT, which outlives a restart of the ranks."""
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = _torch_store(environment, seconds, is_master=False)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return _job(environment, store, f"attempt {attempt}")


def variables(environment: Mapping[str, str], seconds: float) -> Job | None:
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torch.distributed has them: rank 0 runs the TCPStore."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(environment):
        return None
    rank, _ = _rank_and_size(environment)
    store = _torch_store(environment, seconds, is_master=rank == 0)
    return _job(environment, store, "plain")


LAUNCHERS: tuple[Callable[[Mapping[str, str], float], Job | None], ...] = (torchrun, variables)


def _torch_store(environment: Mapping[str, str], seconds: float, *, is_master: bool) -> Any:
    place = _text(environment, "MASTER_ADDR"), _number(environment, "MASTER_PORT")
    if not 1 <= place[1] <= _MOST_PORT:
        raise ValueError(f"MASTER_PORT={place[1]} is no port: they go from 1 to {_MOST_PORT}")
    try:
        distributed: Any = import_module("torch.distributed")
    except ImportError as error:
        raise RuntimeError(
            "ranks that find each other at MASTER_ADDR need the store of PyTorch, which is not installed: install it, "
            "or let them meet in a directory, World(directory, rank, size)"
        ) from error
    if not is_master:
        _await_answer(place, seconds)
    # Several in one process share the port: torch.distributed may have its own there.
    return distributed.TCPStore(
        *place,
        is_master=is_master,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=timedelta(seconds=seconds),
    )


def _await_answer(place: tuple[str, int], seconds: float) -> None:
    """Returns once somebody listens there: attempts of the store itself go on past any bound."""
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


def _job(environment: Mapping[str, str], store: Any, prefix: str) -> Job:
    distributed: Any = import_module("torch.distributed")
    rank, size = _rank_and_size(environment)
    local_rank = _number(environment, "LOCAL_RANK") if "LOCAL_RANK" in environment else 0
    return Job(distributed.PrefixStore(f"zerohop, {prefix}", store), rank, size, local_rank)


def _rank_and_size(environment: Mapping[str, str]) -> tuple[int, int]:
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if not 0 <= rank < size:
        raise ValueError(f"RANK={rank} of WORLD_SIZE={size}: ranks go from 0 to WORLD_SIZE - 1")
    return rank, size


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

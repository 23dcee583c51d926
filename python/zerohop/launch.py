"""How launchers tell a process its rank: one function for each, which knows its variables.

Each returns None where its launcher did not start this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

from zerohop.store import Store

__all__ = ["Job", "job_from_environment"]

_TIMEOUT = 300.0  # seconds for the process that runs the store to start


@dataclass(frozen=True)
class Job:
    store: Store
    rank: int
    size: int
    local_rank: int


def job_from_environment(environment: Mapping[str, str]) -> Job:
    """Raises RuntimeError where no launcher has said anything, ValueError for a variable that says nothing."""
    for launcher in LAUNCHERS:
        job = launcher(environment)
        if job is not None:
            return job
    raise RuntimeError(
        "no launcher has told this process its rank: start it with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT, or say it in the program, World(directory, rank, size)"
    )


def torchrun(environment: Mapping[str, str]) -> Job | None:
    """Its agent runs a TCPStore at MASTER_ADDR and MASTER_PORT, which outlives a restart of the ranks."""
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = _torch_store(environment, is_master=False)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return _job(environment, store, f"attempt {attempt}")


def variables(environment: Mapping[str, str]) -> Job | None:
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torch.distributed has them: rank 0 runs the TCPStore."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(environment):
        return None
    store = _torch_store(environment, is_master=_number(environment, "RANK") == 0)
    return _job(environment, store, "plain")


LAUNCHERS: tuple[Callable[[Mapping[str, str]], Job | None], ...] = (torchrun, variables)


def _torch_store(environment: Mapping[str, str], *, is_master: bool) -> Any:
    place = _text(environment, "MASTER_ADDR"), _number(environment, "MASTER_PORT")
    try:
        distributed: Any = import_module("torch.distributed")
    except ImportError as error:
        raise RuntimeError(
            "ranks that find each other at MASTER_ADDR need the store of PyTorch, which is not installed: install it, "
            "or let them meet in a directory, World(directory, rank, size)"
        ) from error
    # Several in one process share the port: torch.distributed may have its own there.
    return distributed.TCPStore(
        *place,
        is_master=is_master,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=timedelta(seconds=_TIMEOUT),
    )


def _job(environment: Mapping[str, str], store: Any, prefix: str) -> Job:
    distributed: Any = import_module("torch.distributed")
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    local_rank = _number(environment, "LOCAL_RANK") if "LOCAL_RANK" in environment else 0
    return Job(distributed.PrefixStore(f"zerohop, {prefix}", store), rank, size, local_rank)


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

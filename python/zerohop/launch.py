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

_TIMEOUT = 300.0  # seconds for torchrun's store to answer, which runs already


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
        "no launcher has told this process its rank: start it with torchrun, or say it yourself, as in "
        "World(directory, rank, size)"
    )


def torchrun(environment: Mapping[str, str]) -> Job | None:
    """Its agent runs a TCPStore, at MASTER_ADDR and MASTER_PORT, which outlives a restart of the ranks."""
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    distributed: Any = import_module("torch.distributed")  # it is there: torchrun is a part of it
    store = distributed.TCPStore(
        _text(environment, "MASTER_ADDR"),
        _number(environment, "MASTER_PORT"),
        is_master=False,
        timeout=timedelta(seconds=_TIMEOUT),
    )
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Job(
        distributed.PrefixStore(f"attempt {attempt}", store),
        _number(environment, "RANK"),
        _number(environment, "WORLD_SIZE"),
        _number(environment, "LOCAL_RANK"),
    )


LAUNCHERS: tuple[Callable[[Mapping[str, str]], Job | None], ...] = (torchrun,)


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

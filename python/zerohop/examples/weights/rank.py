"""What each rank does: rank 0 trains and pushes, all others read and compare."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerohop.examples.weights.model import model_of
from zerohop.examples.weights.plan import Plan
from zerohop.examples.weights.reader import Reader
from zerohop.examples.weights.trainer import Trainer

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.world import World

__all__ = ["Finding", "Spec", "work"]


@dataclass(frozen=True)
class Spec:
    """killed: this reader dies when it has got half of all versions."""

    plan: Plan
    devices: tuple[str, ...]
    killed: int | None = None


@dataclass
class Finding:
    """seconds: of each version, until it is at all readers. lost: readers, by rank, when and why."""

    device: str
    framework: str
    readers: int
    route: str = ""
    seconds: list[float] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # of each reader the first version


def work(world: World, spec: Spec, report: Report) -> Finding | None:
    """On rank 0 what was found; nothing elsewhere."""
    device = spec.devices[world.local_rank % len(spec.devices)]
    if world.rank == 0:
        return train(world, spec.plan, device, report)
    reader = Reader(world, spec.plan, device)
    half = spec.plan.versions // 2 + 1 if world.rank == spec.killed else 0

    def got(version: int) -> None:
        if version == half:
            os.kill(os.getpid(), signal.SIGKILL)

    reader.tell(reader.read(got))
    return None


def train(world: World, plan: Plan, device: str, report: Report) -> Finding:
    model = model_of(plan, device)
    finding = Finding(device, model.framework, world.size - 1)
    with closing(Trainer(world, plan, model)) as trainer:
        finding.route = trainer.route
        trainer.push_all(lambda version: report("versions", version, plan.versions))
        finding.wrong = trainer.hear_out()
        finding.seconds, finding.lost = trainer.seconds, trainer.lost
        trainer.leave()
    return finding

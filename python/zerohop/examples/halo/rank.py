"""What each rank does: it steps its columns, and rank 0 compares all of them with a reference."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.demo.heat import NEIGHBOUR_SHARE, OLD_SHARE, Grid
from zerohop.examples.arrays import xp_arrays_of
from zerohop.examples.halo.exchange import Exchange
from zerohop.examples.halo.plan import Plan

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.world import World

__all__ = ["Finding", "Spec", "step_inside", "work"]

_PATIENCE_S = 1800.0  # while rank 0 computes the reference; a rank that dies is told at once
_WARM = 2  # steps before it counts: kernels are loaded, arrays mapped


@dataclass(frozen=True)
class Spec:
    plan: Plan
    devices: tuple[str, ...]


@dataclass
class Finding:
    device: str
    framework: str
    route: str  # of halos; empty with one rank
    seconds: float  # of all steps, on rank 0
    wrong: str = ""  # the first cell that is not the reference's, in words


def work(world: World, spec: Spec, report: Report) -> Finding | None:
    """On rank 0 what was found; nothing elsewhere."""
    plan, device = spec.plan, spec.devices[world.local_rank % len(spec.devices)]
    arrays = xp_arrays_of(device)
    memory = world.endpoint.empty(plan.shape(world.rank), "float32", device=device)
    grids = arrays.view(memory)
    exchange = Exchange(world, memory, arrays.stream)
    scratch = arrays.xp.empty((plan.rows, plan.width(world.rank)), "float32")
    seconds = 0.0
    for steps in (_WARM, plan.steps):
        arrays.fill(grids, 0)
        arrays.fill(grids[0], plan.initial(world.rank))
        world.barrier(_PATIENCE_S)  # no halo comes before all have filled their arrays
        begin = time.perf_counter()
        for step in range(1, steps + 1):
            step_inside(arrays.xp, grids[(step - 1) % 2], grids[step % 2], scratch)
            exchange.swap(step)
            report("steps", step, steps)
        exchange.finish()
        seconds = time.perf_counter() - begin
        world.barrier(_PATIENCE_S)
    finding = Finding(device, arrays.name, exchange.route(), seconds)
    cells = np.ascontiguousarray(arrays.to_host(grids[plan.steps % 2, 1:-1, 1:-1]))
    finding.wrong = compare(world, plan, cells, report)
    world.barrier(_PATIENCE_S)
    return finding if world.rank == 0 else None


def step_inside(xp: Any, source: Any, target: Any, around: Any) -> None:
    """One step of the heat equation, of all cells but the frame; each cell by the same operations in the same order."""
    new = target[1:-1, 1:-1]
    xp.add(source[:-2, 1:-1], source[2:, 1:-1], out=around)
    xp.add(around, source[1:-1, :-2], out=around)
    xp.add(around, source[1:-1, 2:], out=around)
    xp.multiply(around, NEIGHBOUR_SHARE, out=around)
    xp.multiply(source[1:-1, 1:-1], OLD_SHARE, out=new)
    xp.add(new, around, out=new)


def compare(world: World, plan: Plan, cells: Grid, report: Report) -> str:
    """Every rank calls it. On rank 0 the first cell that is wrong, in words; empty elsewhere, and if all are right."""
    if world.rank != 0:
        world.gather(None, cells, root=0, timeout=_PATIENCE_S)
        return ""
    parts = [np.empty((plan.rows, plan.width(rank)), np.float32) for rank in range(plan.ranks)]
    world.gather(parts, cells, root=0, timeout=_PATIENCE_S)
    found = np.concatenate(parts, axis=1)
    right = plan.reference(lambda step: report("reference", step, plan.steps))
    differing = np.argwhere(found.view(np.uint32) != right.view(np.uint32))
    if not len(differing):
        return ""
    row, column = (int(number) for number in differing[0])
    rank = next(r for r in range(plan.ranks) if column < plan.columns_of(r).stop)
    return (
        f"cell {row}, {column}, on rank {rank}, is {found[row, column]:.9g}, not {right[row, column]:.9g}; of {found.size} "
        f"cells {len(differing)} are wrong"
    )

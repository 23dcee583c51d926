"""What each rank does: it steps its strip, by each way in turn, and rank 0 compares all strips with the reference."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.demo.heat import Grid, fill_initial, reference
from zerohop.examples.place import Gpu, Place, open_place
from zerohop.examples.stencil.face import Stepper
from zerohop.examples.stencil.host import CpuStepper, LaunchStepper
from zerohop.examples.stencil.plan import LEFT, SLOTS, Plan

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["SOURCE", "Finding", "Spec", "work"]

SOURCE = Path(__file__).parent / "stencil.cu"
_WARM = 2  # steps that are done before it counts: kernels are loaded, ranks connected
_PATIENCE_S = (
    1800.0  # for the others, while rank 0 computes the reference; a rank that dies is told at once
)


@dataclass(frozen=True)
class Spec:
    side: int
    steps: int
    ways: tuple[str, ...]  # "host", "kernel"
    devices: tuple[str, ...]


@dataclass
class Finding:
    """Of one way."""

    way: str
    device: str
    seconds: float = 0.0  # of all steps, on rank 0
    route: str = ""  # of halos; empty with one rank
    wrong: str = ""  # the first cell that is not the reference's, in words


def work(world: World, spec: Spec, report: Report) -> list[Finding]:
    """On rank 0 what was found; nothing elsewhere."""
    place = open_place(spec.devices[world.local_rank % len(spec.devices)], SOURCE)
    plan, expected = Plan(spec.side, world.size), None
    findings = []
    for way in spec.ways:
        finding = Finding(way, place.device)
        finals = step_all(world, spec, plan, place, finding, report)
        if world.rank == 0:
            if expected is None:
                told = partial(_tell, report, "reference", spec.steps)
                expected = reference(spec.side, spec.side, spec.steps, told)[1:-1, 1:-1]
            finding.wrong = compare(finals, plan, expected)
            findings.append(finding)
        world.barrier(_PATIENCE_S)  # rank 0 reads what lies on the others
        finals.close()
    return findings


def step_all(
    world: World, spec: Spec, plan: Plan, place: Place, finding: Finding, report: Report
) -> Segment:
    """Returns the segment with the final cells of every rank, in the host's memory, once all are there."""
    way, strip = finding.way, plan.strip(world.rank)
    nbytes, name = plan.nbytes(world.rank), f"stencil {way}"
    with world.segment(nbytes, name=name, device=place.device, notifications=SLOTS) as segment:
        floats = place.bytes_of(segment.local).view(np.float32).reshape(plan.shape(world.rank))
        stepper = make_stepper(world, segment, plan, place, way)
        told = partial(_tell, report, f"steps by {way}", spec.steps)
        for steps in (_WARM, spec.steps):
            fill(floats, plan, world.rank, place)
            world.barrier(_PATIENCE_S)  # no halo comes before all have filled their grids
            begin = time.perf_counter()
            stepper.run(steps, told)
            finding.seconds = time.perf_counter() - begin
            world.barrier(_PATIENCE_S)
        stepper.close()
        finding.route = route_of(world, segment, plan)
        finals = world.segment(
            4 * strip.rows * strip.columns, name=f"final cells by {way}", dtype="float32"
        )
        cells = floats[spec.steps % 2, 1:-1, LEFT + 1 : LEFT + 1 + strip.columns]
        finals.local.reshape(strip.rows, strip.columns)[...] = place.to_host(cells)
        world.barrier(_PATIENCE_S)
    return finals


def make_stepper(world: World, segment: Segment, plan: Plan, place: Place, way: str) -> Stepper:
    if not isinstance(place, Gpu):
        return CpuStepper(world, segment, plan)
    if way == "host":
        return LaunchStepper(world, segment, plan, place)
    from zerohop.examples.stencil.kernel import KernelStepper

    return KernelStepper(world, segment, plan, place)


def fill(floats: Any, plan: Plan, rank: int, place: Place) -> None:
    """Grid 0 with the state at time zero; the frame of grid 1 stays cold at the edge of the whole."""
    strip = plan.strip(rank)
    first = np.zeros(plan.shape(rank)[1:], np.float32)
    fill_initial(first[:, LEFT : LEFT + strip.columns + 2], strip)
    floats[0] = place.xp.asarray(first)
    floats[1] = 0
    place.finish()


def route_of(world: World, segment: Segment, plan: Plan) -> str:
    sides = plan.sides(world.rank)
    if not sides:
        return ""
    rank = sides[0].rank
    return str(world.peer(rank).route(segment.local, segment.remote(rank)))


def compare(finals: Segment, plan: Plan, expected: Grid) -> str:
    """By rank 0, bit for bit; empty if all cells are right."""
    for rank in range(plan.ranks):
        strip = plan.strip(rank)
        cells = np.empty((strip.rows, strip.columns), np.float32)
        if rank == 0:
            cells[...] = finals.local.reshape(cells.shape)
        else:
            finals.read(rank, cells.reshape(-1), 0)
            finals.wait(timeout=_PATIENCE_S)
        right = expected[strip.first : strip.first + strip.rows]
        differing = np.argwhere(cells.view(np.uint32) != right.view(np.uint32))
        if len(differing):
            row, column = differing[0]
            return (
                f"cell {column} of row {strip.first + row}, on rank {rank}, is {cells[row, column]:.9g}, not "
                f"{right[row, column]:.9g}; of {cells.size} cells there {len(differing)} are wrong"
            )
    return ""


def _tell(report: Report, what: str, total: int, done: int) -> None:
    report(what, done, total)

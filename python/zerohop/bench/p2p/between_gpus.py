"""Arrays on the GPUs of two processes of one host: ours, bare copies, PyTorch and NCCL take turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from zerohop import _core
from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.p2p import nccl, torch_ipc
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.ours import Ours
from zerohop.bench.p2p.plan import (
    BLOCK_TESTS,
    BLOCKS_NBYTES,
    HALO_TOTAL,
    PEERS,
    SIZED_TESTS,
    GpuPlan,
    arena_nbytes,
    gpu_plan,
)
from zerohop.bench.p2p.raw import Raw
from zerohop.bench.p2p.targets import gpu_verdicts
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import LARGE_NBYTES, Options, Step
from zerohop.bench.report import Part, View
from zerohop.bench.rows import Figures, Row
from zerohop.bench.targets import judged_between_gpus
from zerohop.bench.turns import OURS, Absences, Contestant
from zerohop.local import Link, Ranks

SUITE = "p2p"
BOUND_S = 90.0  # for any one answer of a contestant; of the first, its start included
MAKERS: dict[str, tuple[Any, int]] = {
    "raw": (Raw, 1),
    "torch": (torch_ipc.Torch, 2),
    "nccl": (nccl.Nccl, 2),
}
SETTINGS = {"nccl": nccl.SETTINGS, "torch": torch_ipc.SETTINGS}
DRIVER = ("python",)
VIEWS = (
    View("write_latency", "write, waited for by the CPU", "p50"),
    View("stream_notify", "write + notify, stream to stream, one way", "one_way"),
    View("write", "write bandwidth"),
    View("read", "read bandwidth"),
    View("both", "both directions at once, sum"),
    *(View(test, f"{test}, scattered blocks") for test in BLOCK_TESTS),
    View("halo", "halo columns of 64 B (raw: row by row)"),
    View("post_write", "host time of the call that posts a write", "per_call"),
    View("stream_notify", "host time of the call that posts a write + notify", "per_call"),
    View("mapping", "first write to an allocation, above later ones", "first"),
    View("mapping", "posting to mapped memory by a new RemoteMemory, above a known one", "cached"),
    View("mapping", "standard error of that difference", "cached_error"),
)
NO_GPU = (
    "No GPU is visible to the driver, so there is nothing to measure between GPUs (zerohop doctor says why). "
    "zerohop bench host measures between host arrays of two processes, p2p among the ways."
)


def run(options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    if _core.gpu_count() == 0:
        console.print(NO_GPU, soft_wrap=True)
        return False
    return run_bench(make, options, console)


def make(options: Options) -> Bench:
    gpus = (0, min(1, _core.gpu_count() - 1))
    with Ranks(look, 1, gpus, silence=BOUND_S) as ranks:
        free, facts = ranks.results()[0]
    plan = gpu_plan(options, free, len(set(gpus)))
    absences = Absences()
    return Bench(
        name=SUITE,
        steps=steps(plan),
        entrants=entrants(options, gpus, arena_nbytes(plan), absences),
        parts=told,
        seconds=plan.seconds,
        left_out=plan.left_out,
        facts=facts,
        absences=absences,
        first=tuple(Step(test, 8, times=2) for test in SIZED_TESTS),
    )


def steps(plan: GpuPlan) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED_TESTS]
    found += [plan.step(test, BLOCKS_NBYTES) for test in BLOCK_TESTS]
    found += [plan.step("halo", HALO_TOTAL), plan.step("post_write", 8)]
    found.append(plan.step("mapping", plan.mapping_nbytes))
    small = [nbytes for nbytes in plan.sizes if nbytes <= LARGE_NBYTES]
    return found + [plan.step("stream_notify", nbytes) for nbytes in small]


def entrants(
    options: Options, gpus: tuple[int, int], nbytes: int, absences: Absences
) -> list[Entrant]:
    """`absences` gets those that one GPU alone leaves out."""
    memory = f"cuda:{gpus[0]} -> cuda:{gpus[1]}"
    placement = options.placement
    arguments = options.device, gpus, nbytes
    ours = Contestant(OURS, 2, BOUND_S, Ours, *arguments, placement=placement)
    found = [Entrant(OURS, ours, DRIVER, memory, needed=True, check=partial(_check, absences))]
    for name in PEERS:
        if name not in options.peers:
            continue
        if name == "nccl" and gpus[0] == gpus[1]:
            absences.note(name, "", "NCCL takes one process per GPU, and there is one GPU here")
            continue
        make_peer, size = MAKERS[name]
        peer = Contestant(name, size, BOUND_S, make_peer, gpus, nbytes, placement=placement)
        settings = SETTINGS.get(name, "")
        found.append(Entrant(name, peer, DRIVER, memory, settings=settings))
    return found


def _check(absences: Absences, facts: Mapping[str, Any]) -> None:
    if facts["route"] != "p2p":
        reason = f"{facts['route']}, not p2p: {facts['route_reason']}"
        raise PeerFailed(f"the route between the two GPUs is {reason}")
    if facts["lists"] != "write_pages":
        reason = "not in this build: the blocks went through write_many, as a list of pairs"
        absences.note(OURS, "write_pages", reason)


def told(rows: Sequence[Row]) -> Sequence[Part]:
    figures = Figures(rows)
    return (Part("", figures, VIEWS, judged_between_gpus(gpu_verdicts(figures), rows)),)


def look(link: Link, gpus: tuple[int, int]) -> tuple[int, dict[str, Any]]:
    """(bytes free on the fuller GPU, facts), found out by a process that goes away with its contexts."""
    driver = Driver()
    found = [driver.gpu(ordinal) for ordinal in gpus]
    facts = {"gpus": [gpu.name() for gpu in found], "cuda_driver": driver.version()}
    return min(gpu.free_nbytes() for gpu in found), facts

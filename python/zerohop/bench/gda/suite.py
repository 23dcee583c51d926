"""`zerohop bench gda`: kernels that communicate by zerohop, a bare copy and NVSHMEM take turns at every figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console

from zerohop import _core
from zerohop.bench.frame import Bench, Entrant, conduct
from zerohop.bench.gda.nvshmem import SETTINGS, Nvshmem
from zerohop.bench.gda.ours import Ours
from zerohop.bench.gda.plan import DRIVER, HOST_TESTS, RING_WAYS, gda_plan
from zerohop.bench.gda.rings import cells, print_rings
from zerohop.bench.gda.targets import verdicts
from zerohop.bench.gda.views import SHEETS, VIEWS
from zerohop.bench.outcome import deliver
from zerohop.bench.p2p import between_gpus
from zerohop.bench.plan import Options
from zerohop.bench.report import Part
from zerohop.bench.rows import Figures, Row
from zerohop.bench.targets import judged_between_gpus
from zerohop.bench.turns import OURS, Absences, Contestant
from zerohop.local import Ranks

SUITE = "gda"
BARE = "bare"
# Our kernels' test: that of a bare copy, or a bare copy, fence and word, by the same processes.
BARE_TESTS = {"put_notify": "bare_put_notify", "put_wide": "bare_wide"}
BOUND_S = 45.0  # for any one answer of a contestant; of the first, its start and compiler included
NO_GPU = "No GPU is visible to the driver, and only kernels are measured here (zerohop doctor says why there is none)."
ONE_GPU = "There is one GPU: both processes use it, and one way takes as long as it takes to give them their turns."
NVSHMEM_ONE_GPU = "NVSHMEM is measured with one GPU for each process, and there is one GPU here"


def run(options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    count = _core.gpu_count()
    if count == 0:
        console.print(NO_GPU, soft_wrap=True)
        return False
    if count == 1:
        console.print(ONE_GPU, soft_wrap=True)
    outcome = conduct(partial(make, gpus=(0, min(1, count - 1))), options)
    placed = {}
    if options.rings:
        placed = cells(Figures(outcome.rows), outcome.facts.get("device", "no device"))
        said = {" / ".join(places): text for places, text in placed.items()}
        outcome = replace(outcome, facts={**outcome.facts, "rings": said})
    good = deliver(outcome, options, console)
    if placed and outcome.rows:
        print_rings(placed, console)
    return good


def make(options: Options, gpus: tuple[int, int]) -> Bench:
    with Ranks(between_gpus.look, 1, gpus, silence=between_gpus.BOUND_S) as ranks:
        facts = ranks.results()[0][1]
    plan = gda_plan(options, one_gpu=gpus[0] == gpus[1])
    absences = Absences()
    kernels = {s.test: s.test for s in plan.steps if s.test not in HOST_TESTS.values()}
    entrants = make_entrants(options, gpus, kernels, absences)
    return Bench(
        *(SUITE, plan.steps, entrants, told, 0.0, plan.left_out, facts, absences), warm=True
    )


def make_entrants(
    options: Options, gpus: tuple[int, int], kernels: dict[str, str], absences: Absences
) -> list[Entrant]:
    """kernels: the tests of which a kernel is the driver."""
    memory = f"cuda:{gpus[0]} -> cuda:{gpus[1]}"
    placement = options.placement
    ours = Contestant(OURS, 2, BOUND_S, Ours, options.device, gpus, placement=placement)
    found = [Entrant(OURS, ours, (DRIVER,), memory, _route, kernels, needed=True)]
    found.append(Entrant(BARE, ours, (DRIVER,), memory, BARE, BARE_TESTS))
    for driver, test in HOST_TESTS.items():
        found.append(Entrant(OURS, ours, (driver,), memory, _route, {test: test}))
    if "nvshmem" in options.peers:
        if gpus[0] == gpus[1]:
            absences.note("nvshmem", "", NVSHMEM_ONE_GPU)
        else:
            peer = Contestant("nvshmem", 2, BOUND_S, Nvshmem, gpus, placement=placement)
            found.append(
                Entrant("nvshmem", peer, (DRIVER,), memory, tests=kernels, settings=SETTINGS)
            )
    return found


def told(rows: Sequence[Row]) -> Sequence[Part]:
    figures = Figures(rows)
    return (Part("", figures, VIEWS, judged_between_gpus(verdicts(figures), rows), SHEETS),)


def _route(test: str) -> str:
    """The way of the kernel's queue; that of a host's writes is p2p."""
    ways = [way for way in RING_WAYS if way in test]
    return ways[0] if ways else "p2p" if test.startswith("host_") else "mapped"

"""`zerohop bench gda`: kernels that communicate by themselves, of two processes, beside NVSHMEM's."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import Progress

from zerohop import _core
from zerohop.bench.gda.placement import cells, print_placement
from zerohop.bench.gda.plan import gda_plan
from zerohop.bench.gda.suite import SUITE, Suite
from zerohop.bench.gda.targets import verdicts
from zerohop.bench.gda.views import SHEETS, VIEWS
from zerohop.bench.outcome import Outcome, Part, conduct, deliver
from zerohop.bench.p2p.between_gpus import BOUND_S, look
from zerohop.bench.plan import Options
from zerohop.bench.rows import Figures, Row
from zerohop.bench.turns import Absences
from zerohop.local import Ranks

NO_GPU = "No GPU is visible to the driver, and only kernels are measured here (zerohop doctor says why there is none)."
ONE_GPU = "There is one GPU: both processes use it, and one way takes as long as it takes to give them their turns."


def run(options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    count = _core.gpu_count()
    if count == 0:
        console.print(NO_GPU, soft_wrap=True)
        return False
    if count == 1:
        console.print(ONE_GPU, soft_wrap=True)
    gpus = (0, min(1, count - 1))
    rows: list[Row] = []
    absences = Absences()
    facts: dict[str, Any] = {}
    plan = gda_plan(options, one_gpu=count == 1)

    def measure(progress: Progress) -> None:
        with Ranks(look, 1, gpus, silence=BOUND_S) as ranks:
            facts.update(ranks.results()[0][1])
        Suite(options, plan, gpus, rows, absences, facts).measure(progress)

    failure = conduct(measure, console) or "; ".join(absences.failures) or None
    figures = Figures(rows)
    placed = cells(figures, facts.get("device", "no device")) if options.placement else {}
    if placed:
        facts["placement"] = {" / ".join(places): said for places, said in placed.items()}
    part = Part("", figures, VIEWS, verdicts(figures), SHEETS)
    good = deliver(
        Outcome(SUITE, plan.left_out, rows, (part,), facts, failure, absences.told()),
        options,
        console,
    )
    if placed and rows:
        print_placement(placed, console)
    return good

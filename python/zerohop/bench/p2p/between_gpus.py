"""Arrays on the GPUs of two processes of one host: ours, bare copies, PyTorch and NCCL take turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import Progress

from zerohop import _core
from zerohop.bench.outcome import Outcome, Part, conduct, deliver
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.nccl import Nccl
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
from zerohop.bench.p2p.torch_ipc import Torch
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import LARGE_NBYTES, Options, Order
from zerohop.bench.report import View
from zerohop.bench.rows import Figures, Row, medians
from zerohop.bench.turns import ENDING, OURS, Absences, Contestant, guarded, timed
from zerohop.host import human_bytes
from zerohop.local import Link, Ranks
from zerohop.stats import percentiles

SUITE = "p2p"
BOUND_S = 90.0  # for any one answer of a contestant; of the first, its start included
MAKERS: dict[str, tuple[Any, int]] = {"raw": (Raw, 1), "torch": (Torch, 2), "nccl": (Nccl, 2)}
CALL_TESTS = ("post_write", "mapping")  # answered with seconds by metric
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
    "zerohop bench p2p --host measures p2p between host arrays of two processes, and --vs ucx beside it "
    "UCX over shared memory."
)


def run(options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    count = _core.gpu_count()
    if count == 0:
        console.print(NO_GPU, soft_wrap=True)
        return False
    gpus = (0, min(1, count - 1))
    rows: list[Row] = []
    absences = Absences()
    facts: dict[str, Any] = {}
    left_out: list[int] = []

    def measure(progress: Progress) -> None:
        with Ranks(look, 1, gpus, silence=BOUND_S) as ranks:
            free, found = ranks.results()[0]
        facts.update(found)
        plan = gpu_plan(options, free, len(set(gpus)))
        left_out.extend(plan.left_out)
        Suite(options, plan, gpus, rows, absences, facts).measure(progress)

    failure = conduct(measure, console) or "; ".join(absences.failures) or None
    figures = Figures(rows)
    part = Part("", figures, VIEWS, gpu_verdicts(figures))
    outcome = Outcome(SUITE, left_out, rows, (part,), facts, failure, absences.told())
    return deliver(outcome, options, console)


def look(link: Link, gpus: tuple[int, int]) -> tuple[int, dict[str, Any]]:
    """(bytes free on the fuller GPU, facts), found out by a process that goes away with its contexts."""
    driver = Driver()
    found = [driver.gpu(ordinal) for ordinal in gpus]
    facts = {"gpus": [gpu.name() for gpu in found], "cuda_driver": driver.version()}
    return min(gpu.free_nbytes() for gpu in found), facts


class Suite:
    """One run over the plan. `rows` gathers the figures, `absences` who was not measured, `facts` the rest."""

    def __init__(
        self,
        options: Options,
        plan: GpuPlan,
        gpus: tuple[int, int],
        rows: list[Row],
        absences: Absences,
        facts: dict[str, Any],
    ) -> None:
        self._plan = plan
        self._gpus = gpus
        self._rows = rows
        self._absences = absences
        self._facts = facts
        nbytes = arena_nbytes(plan)
        ours = Contestant(OURS, 2, BOUND_S, Ours, options.device, gpus, nbytes)
        self._contestants = [ours]
        for name in options.peers:
            if name not in PEERS:
                absences.note(name, "", f"{name} is measured between host arrays: add --host")
            elif name == "nccl" and gpus[0] == gpus[1]:
                absences.note(name, "", "NCCL takes one process per GPU, and there is one GPU here")
            else:
                make, size = MAKERS[name]
                self._contestants.append(Contestant(name, size, BOUND_S, make, gpus, nbytes))

    def measure(self, progress: Progress) -> None:
        plan = self._plan
        steps = [(test, nbytes) for nbytes in plan.sizes for test in SIZED_TESTS]
        steps += [(test, BLOCKS_NBYTES) for test in BLOCK_TESTS]
        steps += [("halo", HALO_TOTAL), ("post_write", 8), ("mapping", plan.mapping_nbytes)]
        steps += [("stream_notify", nbytes) for nbytes in plan.sizes if nbytes <= LARGE_NBYTES]
        task = progress.add_task("bench p2p", total=len(steps))
        with ExitStack() as stack:
            for contestant in self._contestants:
                stack.enter_context(closing(contestant)).start()
            for contestant in self._contestants:
                self._begin(contestant)
            for test, nbytes in steps:
                progress.update(task, description=f"{test} {human_bytes(nbytes)}")
                self._take_turns(test, nbytes)
                progress.advance(task)
            for contestant in self._contestants:
                guarded(self._absences, contestant, ENDING, contestant.finish)

    def _begin(self, contestant: Contestant) -> None:
        """Has it do everything once: what it sets up at the first use is not timed."""
        found = guarded(self._absences, contestant, "", partial(contestant.ask, "facts"))
        if found is None:
            return
        facts = found[0]
        self._facts.update(facts)
        if contestant.name == OURS:
            if facts["route"] != "p2p":
                reason = f"{facts['route']}, not p2p: {facts['route_reason']}"
                raise PeerFailed(f"the route between the two GPUs is {reason}")
            if facts["lists"] != "write_pages":
                reason = "not in this build: the blocks went through write_many, as a list of pairs"
                self._absences.note(OURS, "write_pages", reason)
        for test in SIZED_TESTS:
            order = Order(test, "python", 8, 2)
            if not self._absences.covers(contestant.name, test):
                guarded(self._absences, contestant, test, partial(contestant.ask, order))

    def _take_turns(self, test: str, nbytes: int) -> None:
        known = len(self._rows)
        for _ in range(self._plan.rounds_of(nbytes)):
            for contestant in self._contestants:
                if not self._absences.covers(contestant.name, test):
                    guarded(
                        self._absences,
                        contestant,
                        test,
                        partial(self._one, contestant, test, nbytes),
                    )
        self._rows[known:] = medians(self._rows[known:])

    def _one(self, contestant: Contestant, test: str, nbytes: int) -> None:
        if test in CALL_TESTS or test == "stream_notify":
            found = contestant.ask(Order(test, "python", nbytes, 1))[0]
            for metric, value in found.items():
                self._add(contestant.name, test, nbytes, metric, value, "s")
            return
        ask = partial(self._timed_once, contestant)
        samples, seconds, times = timed(ask, test, nbytes, "python", self._plan.seconds)
        if test.endswith("latency"):
            for metric, value in percentiles(samples).items():
                self._add(contestant.name, test, nbytes, metric, value, "s")
        else:
            rate = nbytes * times / seconds * (2 if test == "both" else 1)
            self._add(contestant.name, test, nbytes, "bandwidth", rate, "B/s")

    def _timed_once(self, contestant: Contestant, order: Order) -> tuple[Sequence[float], float]:
        answers = contestant.ask(order)
        if order.test.endswith("latency"):
            return answers[0], sum(answers[0])
        return (), max(answers)  # of two active ends: until the later is done

    def _add(self, impl: str, test: str, nbytes: int, metric: str, value: float, unit: str) -> None:
        here, there = self._gpus
        self._rows.append(
            Row(
                suite=SUITE,
                test=test,
                route="p2p" if impl == OURS else impl,
                device=self._facts["device"] if impl == OURS else "",
                memory=f"cuda:{here} -> cuda:{there}",
                driver="python",
                nbytes=nbytes,
                impl=impl,
                metric=metric,
                value=value,
                unit=unit,
            )
        )

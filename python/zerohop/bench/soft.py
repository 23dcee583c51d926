"""`zerohop bench soft`: latency, bandwidth and call costs over verbs on this machine, peers beside them.

Ours and theirs take turns, size by size and test by test, so that a machine that warms up, throttles or
gets other work shifts both. Two worker processes carry out ours; they sleep while a peer is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.progress import Progress

from zerohop.bench import iperf3, ucx
from zerohop.bench.idle import hold_peers
from zerohop.bench.outcome import Outcome, Part, conduct, deliver
from zerohop.bench.plan import (
    BLOCK_TESTS,
    MIB,
    SIZED_TESTS,
    Options,
    Order,
    Plan,
    make_plan,
)
from zerohop.bench.report import SOFT_VIEWS
from zerohop.bench.rows import Figures, Row, medians
from zerohop.bench.targets import verdicts
from zerohop.bench.turns import timed
from zerohop.bench.worker import work
from zerohop.host import available_memory, human_bytes
from zerohop.local import Ranks
from zerohop.stats import percentiles

SUITE = "soft"
VERSIONS = {"ucx": ucx.version, "iperf3": iperf3.version}


def run(options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the rows where asked; False when a part of it failed."""
    plan = make_plan(options, available_memory())
    versions: dict[str, str] = {}
    rows: list[Row] = []

    def measure(progress: Progress) -> None:
        versions.update({name: VERSIONS[name]() for name in options.peers if name in VERSIONS})
        Suite(options, plan, progress, rows).measure()

    failure = conduct(measure, console)
    figures = Figures(rows)
    part = Part("", figures, SOFT_VIEWS, verdicts(figures))
    outcome = Outcome(SUITE, plan.left_out, rows, (part,), versions, failure)
    return deliver(outcome, options, console)


class Suite:
    """One run over the plan. `rows` gathers the figures in the order of measurement."""

    def __init__(self, options: Options, plan: Plan, progress: Progress, rows: list[Row]) -> None:
        self._options = options
        self._plan = plan
        self._progress = progress
        self._rows = rows
        self._device = self._route = ""

    def measure(self) -> None:
        plan = self._plan
        blocks = [(test, n * block) for test, block in BLOCK_TESTS.items() for n in plan.blocks]
        steps = len(SIZED_TESTS) * len(plan.sizes) + len(blocks) + 2
        task = self._progress.add_task("bench soft", total=steps)
        with Ranks(work, 2, self._options.device, plan.arena_nbytes) as ranks:
            facts = ranks.ask("facts")[0]
            self._device, self._route = facts["device"], facts["route"]
            for nbytes in plan.sizes:
                for test in SIZED_TESTS:
                    self._progress.update(task, description=f"{test} {human_bytes(nbytes)}")
                    self._take_turns(ranks, test, nbytes)
                    self._progress.advance(task)
            for test, nbytes in blocks:
                self._progress.update(task, description=f"{test} {human_bytes(nbytes)}")
                self._take_turns(ranks, test, nbytes)
                self._progress.advance(task)
            self._progress.update(task, description="cost per call")
            for test, driver, metric, seconds in ranks.ask("call costs")[0]:
                size = 8 if test == "post_write" else 0
                self._add(test, driver, size, metric, seconds, "s")
            self._progress.advance(task)
            ranks.tell(None)
            ranks.results()
        self._progress.update(task, description="idle peers")
        self._idle()
        self._progress.advance(task)

    def _take_turns(self, ranks: Ranks, test: str, nbytes: int) -> None:
        known = len(self._rows)
        for _ in range(self._plan.rounds_of(nbytes)):
            self._ours(ranks, test, nbytes, "cpp")
            if test in SIZED_TESTS:
                self._theirs(ranks, test, nbytes)
            self._ours(ranks, test, nbytes, "python")
        self._rows[known:] = medians(self._rows[known:])

    def _ours(self, ranks: Ranks, test: str, nbytes: int, driver: str) -> None:
        samples, seconds, times = self._timed(ranks, test, nbytes, driver)
        if test == "latency":
            for metric, value in percentiles(samples).items():
                self._add(test, driver, nbytes, metric, value, "s")
        else:
            self._add(test, driver, nbytes, "bandwidth", nbytes * times / seconds, "B/s")

    def _theirs(self, ranks: Ranks, test: str, nbytes: int) -> None:
        seconds = self._plan.seconds
        if "ucx" in self._options.peers:
            if test == "latency":
                for metric, value in ucx.latency(nbytes, seconds, self._plan.ucx_ranks).items():
                    self._add(test, "cpp", nbytes, metric, value, "s", "ucx")
            else:
                rate = ucx.bandwidth(test, nbytes, seconds)
                self._add(test, "cpp", nbytes, "bandwidth", rate, "B/s", "ucx")
        if "tcp" in self._options.peers and test == "latency":
            samples, _, _ = self._timed(ranks, "tcp_latency", nbytes, "cpp")
            for metric, value in percentiles(samples).items():
                self._add(test, "cpp", nbytes, metric, value, "s", "tcp")
        if "tcp" in self._options.peers and test == "write":
            _, elapsed, times = self._timed(ranks, "tcp_stream", nbytes, "cpp")
            self._add(test, "cpp", nbytes, "bandwidth", nbytes * times / elapsed, "B/s", "tcp")
        if "iperf3" in self._options.peers and test == "write" and nbytes >= MIB:
            rate = iperf3.bandwidth(nbytes, seconds)
            self._add(test, "cpp", nbytes, "bandwidth", rate, "B/s", "iperf3")

    def _timed(
        self, ranks: Ranks, test: str, nbytes: int, driver: str
    ) -> tuple[Sequence[float], float, int]:
        return timed(partial(self._once, ranks), test, nbytes, driver, self._plan.seconds)

    def _once(self, ranks: Ranks, order: Order) -> tuple[Sequence[float], float]:
        answers = ranks.ask(order)
        if order.test.endswith("latency"):
            return answers[0], 2 * sum(answers[0])
        return (), max(answers)  # of send and recv: until the later of the two ends is done

    def _idle(self) -> None:
        with Ranks(hold_peers, 2, self._options.device, self._plan.idle_peers) as ranks:
            for count, nbytes in ranks.results()[0]:
                self._add(f"idle_peers_{count}", "cpp", 0, "rss_per_peer", nbytes, "B")

    def _add(
        self,
        test: str,
        driver: str,
        nbytes: int,
        metric: str,
        value: float,
        unit: str,
        impl: str = "zerohop",
    ) -> None:
        ours = impl == "zerohop"
        self._rows.append(
            Row(
                suite=SUITE,
                test=test,
                route=self._route if ours else "tcp",
                device=self._device if ours else "lo",
                memory="host",
                driver=driver,
                nbytes=nbytes,
                impl=impl,
                metric=metric,
                value=value,
                unit=unit,
            )
        )

"""`zerohop bench p2p --host`: host arrays of two processes, copied by the CPU, beside UCX's shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import Progress

from zerohop.bench import ucx
from zerohop.bench.outcome import Outcome, Part, conduct, deliver
from zerohop.bench.p2p.plan import PEERS
from zerohop.bench.p2p.targets import host_verdicts
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import DRIVERS, LARGE_NBYTES, Options, Order, Plan, make_plan
from zerohop.bench.report import View
from zerohop.bench.rows import Figures, Row, medians
from zerohop.bench.turns import Absences, timed
from zerohop.bench.worker import work
from zerohop.host import available_memory, human_bytes
from zerohop.local import Ranks
from zerohop.stats import percentiles

SUITE = "p2p"
MEMORIES = {"empty": "memory of Endpoint.empty()", "numpy": "plain NumPy memory"}
LATENCIES = ("write_latency", "latency")
TESTS = (*LATENCIES, "write", "read")
WAYS = {"empty": ucx.POSIX, "numpy": ucx.CMA}  # what UCX does with memory of that kind
UCX_TESTS = {"write_latency": "latency", "write": "write", "read": "read"}  # ours: ucx.py's
VIEWS = (
    View("write_latency", "write, half round trip, its last byte polled", "p50"),
    View("latency", "write + notify, half round trip", "p50"),
    View("write", "write bandwidth"),
    View("read", "read bandwidth"),
)


def run(options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed."""
    plan = make_plan(options, available_memory() // (2 * len(MEMORIES)))
    rows: list[Row] = []
    absences = Absences()
    facts: dict[str, Any] = {}
    failure = conduct(HostSuite(options, plan, rows, absences, facts).measure, console)
    parts = []
    for memory, label in MEMORIES.items():
        figures = Figures(row for row in rows if row.memory == memory)
        parts.append(Part(label, figures, VIEWS, host_verdicts(figures, memory == "empty")))
    outcome = Outcome(SUITE, plan.left_out, rows, parts, facts, failure, absences.told())
    return deliver(outcome, options, console)


class HostSuite:
    """One run over the plan. Ours runs in two worker processes for each kind of memory."""

    def __init__(
        self,
        options: Options,
        plan: Plan,
        rows: list[Row],
        absences: Absences,
        facts: dict[str, Any],
    ) -> None:
        self._options = options
        self._plan = plan
        self._rows = rows
        self._absences = absences
        self._facts = facts
        self._ranks: dict[str, Ranks] = {}
        for name in options.peers:
            if name in PEERS:
                absences.note(name, "", f"{name} is measured between GPUs: leave out --host")
        if "ucx" in options.peers:
            self._attempt("ucx", "", self._look_for_ucx)

    def _look_for_ucx(self) -> None:
        self._facts["ucx"] = ucx.version()

    def _attempt(self, name: str, test: str, act: Callable[[], None]) -> None:
        try:
            act()
        except PeerFailed as error:
            self._absences.note(name, test, str(error))

    def measure(self, progress: Progress) -> None:
        sizes = self._plan.sizes
        steps = [(n, test) for n in sizes for test in TESTS if self._wanted(test, n)]
        task = progress.add_task("bench p2p --host", total=len(steps))
        nbytes = 2 * max(sizes)
        with ExitStack() as stack:
            for memory in MEMORIES:
                ranks = Ranks(work, 2, self._options.device, nbytes, 1, memory)
                stack.enter_context(ranks)
                self._begin(memory, ranks)
            if not self._ranks:
                raise PeerFailed("no kind of memory is copied by p2p here")
            for size, test in steps:
                progress.update(task, description=f"{test} {human_bytes(size)}")
                self._take_turns(test, size)
                progress.advance(task)
            for ranks in self._ranks.values():
                ranks.tell(None)
                ranks.results()

    def _wanted(self, test: str, nbytes: int) -> bool:
        """A ping-pong of more than that tells the bandwidth once more."""
        return nbytes <= LARGE_NBYTES or test not in LATENCIES

    def _begin(self, memory: str, ranks: Ranks) -> None:
        facts = ranks.ask("facts")[0]
        if facts["route"] == "p2p":
            self._ranks[memory] = ranks
            self._facts["device"] = facts["device"]
        else:
            reason = f"the route is {facts['route']}, not p2p: {facts['reason']}"
            self._absences.note("zerohop", MEMORIES[memory], reason)

    def _take_turns(self, test: str, nbytes: int) -> None:
        known = len(self._rows)
        for _ in range(self._plan.rounds_of(nbytes)):
            for memory in self._ranks:
                for driver in DRIVERS:
                    self._ours(memory, test, nbytes, driver)
                name = f"ucx {WAYS[memory].name}"
                known_absent = self._absences.covers("ucx", "") or self._absences.covers(name, test)
                if "ucx" in self._options.peers and test in UCX_TESTS and not known_absent:
                    self._attempt(name, test, partial(self._ucx, memory, test, nbytes))
        self._rows[known:] = medians(self._rows[known:])

    def _ours(self, memory: str, test: str, nbytes: int, driver: str) -> None:
        ask = partial(self._once, self._ranks[memory])
        samples, seconds, times = timed(ask, test, nbytes, driver, self._plan.seconds)
        if test in LATENCIES:
            self._add_times(memory, test, driver, nbytes, percentiles(samples))
        else:
            self._add(memory, test, driver, nbytes, "bandwidth", nbytes * times / seconds, "B/s")

    def _once(self, ranks: Ranks, order: Order) -> tuple[Sequence[float], float]:
        answers = ranks.ask(order)
        if order.test in LATENCIES:
            return answers[0], 2 * sum(answers[0])
        return (), max(answers)

    def _ucx(self, memory: str, test: str, nbytes: int) -> None:
        seconds, way = self._plan.seconds, WAYS[memory]
        if test in LATENCIES:
            found = ucx.latency(nbytes, seconds, self._plan.ucx_ranks, way)
            self._add_times(memory, test, "cpp", nbytes, found, "ucx")
        else:
            rate = ucx.bandwidth(UCX_TESTS[test], nbytes, seconds, way)
            self._add(memory, test, "cpp", nbytes, "bandwidth", rate, "B/s", "ucx")

    def _add_times(
        self,
        memory: str,
        test: str,
        driver: str,
        nbytes: int,
        found: dict[str, float],
        impl: str = "zerohop",
    ) -> None:
        for metric, value in found.items():
            self._add(memory, test, driver, nbytes, metric, value, "s", impl)

    def _add(
        self,
        memory: str,
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
                route="p2p" if ours else WAYS[memory].name,
                device=self._facts["device"] if ours else "",
                memory=memory,
                driver=driver,
                nbytes=nbytes,
                impl=impl,
                metric=metric,
                value=value,
                unit=unit,
            )
        )

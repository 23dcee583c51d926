"""One run: kernels that communicate by zerohop, a bare copy and NVSHMEM take turns at every figure."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from rich.progress import Progress

from zerohop.bench.gda.nvshmem import Nvshmem
from zerohop.bench.gda.ours import Ours
from zerohop.bench.gda.plan import RING_WAYS, GdaPlan, Step
from zerohop.bench.plan import Options, Order
from zerohop.bench.rows import Row, medians
from zerohop.bench.turns import ENDING, OURS, Absences, Contestant, guarded
from zerohop.host import human_bytes

SUITE = "gda"
BARE = "bare"
BARE_TESTS = {
    "put_wide": "bare_wide"
}  # our kernels' test: that of the bare copy, by the same processes
BOUND_S = 45.0  # for any one answer of a contestant; of the first, its start and compiler included
UNITS = {"bandwidth": "B/s", "rate": "1/s"}  # other metrics are seconds
ONE_GPU = "NVSHMEM is measured with one GPU for each process, and there is one GPU here"


class Suite:
    """`rows` gathers the figures, `absences` who was not measured, `facts` the rest."""

    def __init__(
        self,
        options: Options,
        plan: GdaPlan,
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
        self._ours = Contestant(OURS, 2, BOUND_S, Ours, options.device, gpus)
        self._contestants = [self._ours]
        if "nvshmem" in options.peers:
            if gpus[0] == gpus[1]:
                absences.note("nvshmem", "", ONE_GPU)
            else:
                self._contestants.append(Contestant("nvshmem", 2, BOUND_S, Nvshmem, gpus))

    def measure(self, progress: Progress) -> None:
        task = progress.add_task("bench gda", total=len(self._plan.steps))
        with ExitStack() as stack:
            for contestant in self._contestants:
                stack.enter_context(closing(contestant)).start()
            for contestant in self._contestants:
                found = guarded(self._absences, contestant, "", partial(contestant.ask, "facts"))
                self._facts.update(found[0] if found else {})
            for step in self._plan.steps:
                progress.update(task, description=f"{step.test} {human_bytes(step.nbytes)}")
                self._take_turns(step)
                progress.advance(task)
            for contestant in self._contestants:
                guarded(self._absences, contestant, ENDING, contestant.finish)

    def _take_turns(self, step: Step) -> None:
        """Each does it once before: what is set up at the first use is not timed."""
        known = len(self._rows)
        for turn in range(1 + self._plan.turns):
            if turn == 1:
                del self._rows[known:]
            for impl, contestant, test in self._players(step):
                if not self._absences.covers(contestant.name, test):
                    one = partial(self._one, impl, contestant, test, step)
                    guarded(self._absences, contestant, test, one)
        self._rows[known:] = medians(self._rows[known:])

    def _players(self, step: Step) -> list[tuple[str, Contestant, str]]:
        players = [(contestant.name, contestant, step.test) for contestant in self._contestants]
        if step.test in BARE_TESTS:
            players.insert(1, (BARE, self._ours, BARE_TESTS[step.test]))
        return players

    def _one(self, impl: str, contestant: Contestant, test: str, step: Step) -> None:
        answers = contestant.ask(Order(test, step.driver, step.nbytes, step.times))
        here, there = self._gpus
        for metric, value in answers[0].items():
            self._rows.append(
                Row(
                    suite=SUITE,
                    test=step.test,
                    route=_route(step.test) if impl == OURS else impl,
                    device=self._facts["device"] if impl == OURS else "",
                    memory=f"cuda:{here} -> cuda:{there}",
                    driver=step.driver,
                    nbytes=step.nbytes,
                    impl=impl,
                    metric=metric,
                    value=value,
                    unit=UNITS.get(metric, "s"),
                )
            )


def _route(test: str) -> str:
    """The way of the kernel's queue; that of a host's writes is p2p."""
    ways = [way for way in RING_WAYS if way in test]
    return ways[0] if ways else "p2p" if test.startswith("host_") else "mapped"

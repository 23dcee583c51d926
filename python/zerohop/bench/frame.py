"""What every command of `zerohop bench` is made of: steps, and who takes each of them in turn.

Ours and theirs alternate at every figure of one run, so that a machine that warms up, throttles or gets
other work shifts all of them. Who is missing, fails or hangs is told in a sentence and left out from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console

from zerohop.bench.outcome import Outcome, deliver
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import Options, Order, Step
from zerohop.bench.progress import Watch
from zerohop.bench.report import Part
from zerohop.bench.rows import Row, medians
from zerohop.bench.turns import ENDING, OURS, Absences, Player, guarded
from zerohop.host import human_bytes
from zerohop.local import RankFailed

UNITS = {"bandwidth": "B/s", "rate": "1/s", "rss_per_peer": "B"}  # other metrics are seconds


@dataclass(frozen=True)
class Entrant:
    """Who takes a step: `player` under the name `impl`, once by each of `drivers`.

    memory, route: of the rows. route of ours, if empty: what the player's facts say.
    tests: its name of each test that it takes. None: all, by their own names; a player may yet refuse.
    needed: without its facts there is nothing to measure.
    """

    impl: str
    player: Player
    drivers: Sequence[str] = ("cpp",)
    memory: str = "host"
    route: str | Callable[[str], str] = ""
    tests: Mapping[str, str] | None = None
    needed: bool = False
    check: Callable[[Mapping[str, Any]], None] | None = None  # of its facts; raises PeerFailed
    label: str = ""  # who it is in what is told, where the impl says too little

    @property
    def name(self) -> str:
        return self.label or self.impl

    def test_of(self, step: Step) -> str | None:
        return step.test if self.tests is None else self.tests.get(step.test)


@dataclass(frozen=True)
class Bench:
    """A command.

    parts: what is told of the rows. facts: those that are known before. first: steps that everybody takes
    once, untimed, for what is set up at the first use; warm: the same of every step.
    """

    name: str
    steps: Sequence[Step]
    entrants: Sequence[Entrant]
    parts: Callable[[Sequence[Row]], Sequence[Part]]
    seconds: float
    left_out: Sequence[int] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    absences: Absences = field(default_factory=Absences)
    first: Sequence[Step] = ()
    warm: bool = False


Make = Callable[[Options], Bench]


def run_bench(make: Make, options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    outcome = conduct(make, options)
    return deliver(outcome, options, console)


def conduct(make: Make, options: Options) -> Outcome:
    """Rows measured before a failure are kept."""
    try:
        bench = make(options)
    except (PeerFailed, RankFailed) as error:
        return Outcome("", (), (), (), {}, str(error))
    rows: list[Row] = []
    facts = dict(bench.facts)
    failure = None
    with Watch(f"zerohop bench {bench.name}") as watch:
        try:
            Run(bench, rows, facts).measure(watch)
        except (PeerFailed, RankFailed) as error:
            failure = str(error)
    failure = failure or "; ".join(bench.absences.failures) or None
    told = bench.absences.told()
    return Outcome(bench.name, bench.left_out, rows, bench.parts(rows), facts, failure, told)


class Run:
    """`rows` gathers the figures in the order of measurement, `facts` what the players say of themselves."""

    def __init__(self, bench: Bench, rows: list[Row], facts: dict[str, Any]) -> None:
        self._bench = bench
        self._rows = rows
        self._facts = facts
        self._absences = bench.absences
        self._own: dict[str, Mapping[str, Any]] = {}  # by the entrants' names
        players = {entrant.player: entrant for entrant in reversed(bench.entrants)}
        self._players = list(reversed(players.items()))  # each once, with its first entrant

    def measure(self, watch: Watch) -> None:
        with ExitStack() as stack:
            for player, entrant in self._players:
                stack.enter_context(closing(player))
                watch.at(f"{entrant.name} begins")
                guarded(self._absences, entrant.name, player, "", player.start)
            for entrant in self._bench.entrants:
                watch.at(f"{entrant.name} says what it is")
                self._begin(entrant)
            watch.expect(len(self._bench.steps))
            for step in self._bench.steps:
                self._take_turns(step, watch)
                watch.advance()
            for player, entrant in self._players:
                guarded(self._absences, entrant.name, player, ENDING, player.finish)

    def _begin(self, entrant: Entrant) -> None:
        def look() -> Mapping[str, Any]:
            found = entrant.player.facts()
            if entrant.check is not None:
                entrant.check(found)
            return found

        if self._absences.covers(entrant.name, ""):
            return
        found = guarded(self._absences, entrant.name, entrant.player, "", look)
        if found is None:
            if entrant.needed:
                raise PeerFailed(self._absences.reasons.pop((entrant.name, "")))
            return
        self._own[entrant.name] = found
        for name, value in found.items():
            self._facts.setdefault(name, value)
        for step in self._bench.first:
            self._take(entrant, step)

    def _take_turns(self, step: Step, watch: Watch) -> None:
        known = len(self._rows)
        size = f" {human_bytes(step.nbytes)}" if step.nbytes else ""
        for turn in range(step.turns + self._bench.warm):
            if turn == int(self._bench.warm):
                del self._rows[known:]
            for entrant in self._bench.entrants:
                watch.at(f"{step.test}{size}, {entrant.name}")
                self._rows += self._take(entrant, step)
        self._rows[known:] = medians(self._rows[known:])

    def _take(self, entrant: Entrant, step: Step) -> list[Row]:
        test = entrant.test_of(step)
        rows: list[Row] = []
        if test is None or self._absences.covers(entrant.name, ""):
            return rows
        for driver in entrant.drivers:
            told = test if len(entrant.drivers) == 1 else f"{test} from {driver}"
            if self._absences.covers(entrant.name, told):
                continue
            order = Order(test, driver, step.nbytes, step.times)
            act = partial(entrant.player.measure, order, self._bench.seconds)
            found = guarded(self._absences, entrant.name, entrant.player, told, act)
            rows += [self._row(entrant, step, driver, *item) for item in (found or {}).items()]
        return rows

    def _row(self, entrant: Entrant, step: Step, driver: str, metric: str, value: float) -> Row:
        own = self._own[entrant.name] if entrant.impl == OURS else {}
        route = entrant.route(step.test) if callable(entrant.route) else entrant.route
        return Row(
            suite=self._bench.name,
            test=step.test,
            route=route or own.get("route", entrant.impl),
            device=own.get("device", ""),
            memory=entrant.memory,
            driver=driver,
            nbytes=step.nbytes,
            impl=entrant.impl,
            metric=metric,
            value=value,
            unit=UNITS.get(metric, "s"),
        )

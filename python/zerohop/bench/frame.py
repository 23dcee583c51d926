"""What every command of `zerohop bench` is made of: steps, and who takes each of them in turn.

Ours and theirs alternate at every figure of one run, so that a machine that warms up, throttles or gets
other work shifts all of them; whose turn it is not is stopped. All figures are taken, and then all of them again:
those that differ are marked. Who is missing, fails or hangs is told in a sentence and left out from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rich.console import Console

from zerohop.bench.outcome import Outcome, deliver
from zerohop.bench.peer import PeerFailed
from zerohop.bench.placement import possible
from zerohop.bench.plan import Options, Order, Step
from zerohop.bench.progress import Watch
from zerohop.bench.report import Part
from zerohop.bench.rows import Row, settled
from zerohop.bench.turns import ENDING, OURS, Absences, Player, Result, guarded
from zerohop.host import human_bytes
from zerohop.local import RankFailed

ONE_CORE = "this process may use one core"
PASSES = 2  # over all steps
UNITS = {"bandwidth": "B/s", "rate": "1/s", "rss_per_peer": "B"}  # other metrics are seconds


@dataclass(frozen=True)
class Entrant:
    """Who takes a step: `player` under the name `impl`, once by each of `drivers`.

    memory, route: of the rows. route of ours, if empty: what the player's facts say.
    tests: its name of each test that it takes. None: all, by their own names; a player may yet refuse.
    needed: without its facts there is nothing to measure. settings: what is set for it that users do not set by themselves.
    """

    impl: str
    player: Player
    drivers: Sequence[str] = ("cpp",)
    memory: str = "host"
    route: str | Callable[[str], str] = ""
    tests: Mapping[str, str] | None = None
    needed: bool = False
    check: Callable[[Mapping[str, Any]], None] | None = None  # of its facts; raises PeerFailed
    settings: str = ""
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
    once, untimed, for what is set up at the first use; warm: the same of every step. compares_placements: its
    parts are made of the rows of all of them.
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
    compares_placements: bool = False


Make = Callable[[Options], Bench]


def run_bench(make: Make, options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    outcome = conduct(make, options)
    return deliver(outcome, options, console)


def conduct(make: Make, options: Options) -> Outcome:
    """Rows measured before a failure are kept."""
    placements = tuple(filter(possible, options.placements)) or (options.placement,)
    try:
        benches = [make(replace(options, placement=placement)) for placement in placements]
    except (PeerFailed, RankFailed) as error:
        return Outcome("", (), (), (), {}, str(error))
    rows: list[Row] = []
    facts = dict(benches[0].facts)
    failures = []
    told = [
        {"impl": "everybody", "test": placement, "reason": ONE_CORE}
        for placement in options.placements
        if placement not in placements
    ]
    with Watch(f"zerohop bench {benches[0].name}") as watch:
        for placement, bench in zip(placements, benches, strict=True):
            try:
                Run(bench, placement, rows, facts).measure(watch)
            except (PeerFailed, RankFailed) as error:
                failures.append(str(error))
            failures += bench.absences.failures
            told += [absence for absence in bench.absences.told() if absence not in told]
    bench = benches[0]
    return Outcome(
        *(bench.name, bench.left_out, rows, _parts(bench, placements, rows), facts),
        *("; ".join(failures) or None, told),
    )


def _parts(bench: Bench, placements: Sequence[str], rows: Sequence[Row]) -> list[Part]:
    if bench.compares_placements:
        return list(bench.parts(rows))
    found = []
    for placement in placements:
        those = [row for row in rows if row.placement == placement]
        found += [replace(part, placement=placement) for part in bench.parts(those)]
    return found


class Run:
    """`rows` gathers the figures in the order of measurement, `facts` what the players say of themselves."""

    def __init__(
        self, bench: Bench, placement: str, rows: list[Row], facts: dict[str, Any]
    ) -> None:
        self._bench = bench
        self._placement = placement
        self._rows = rows
        self._facts = facts
        self._absences = bench.absences
        self._own: dict[str, Mapping[str, Any]] = {}  # by the entrants' names
        players = {entrant.player: entrant for entrant in reversed(bench.entrants)}
        self._players = list(reversed(players.items()))  # each once, with its first entrant
        self._passes: list[list[Row]] = [[] for _ in range(PASSES)]

    def measure(self, watch: Watch) -> None:
        watch.expect(0)
        with ExitStack() as stack:
            for player, entrant in self._players:
                stack.enter_context(closing(player))
                watch.at(f"{entrant.name} begins")
                guarded(self._absences, entrant.name, player, "", player.start)
            for entrant in self._bench.entrants:
                watch.at(f"asking {entrant.name} for its settings")
                self._begin(entrant)
            watch.expect(PASSES * len(self._bench.steps))
            try:
                self._take_all(watch)
            finally:
                self._rows += settled(self._passes)
            for player, entrant in self._players:
                player.resume()
                guarded(self._absences, entrant.name, player, ENDING, player.finish)

    def _take_all(self, watch: Watch) -> None:
        for taken in self._passes:
            for step in self._bench.steps:
                self._take_turns(step, watch, taken)
                watch.advance()

    def _act(self, entrant: Entrant, test: str, act: Callable[[], Result]) -> Result | None:
        """As guarded(). Its processes run meanwhile, those of all others do not."""
        entrant.player.resume()
        try:
            return guarded(self._absences, entrant.name, entrant.player, test, act)
        finally:
            entrant.player.pause()

    def _begin(self, entrant: Entrant) -> None:
        def look() -> Mapping[str, Any]:
            found = entrant.player.facts()
            if entrant.check is not None:
                entrant.check(found)
            return found

        if self._absences.covers(entrant.name, ""):
            return
        found = self._act(entrant, "", look)
        if found is None:
            if entrant.needed:
                raise PeerFailed(self._absences.reasons.pop((entrant.name, "")))
            return
        self._own[entrant.name] = found
        for name, value in found.items():
            self._facts.setdefault(name, value)
        for step in self._bench.first:
            self._take(entrant, step)

    def _take_turns(self, step: Step, watch: Watch, taken: list[Row]) -> None:
        size = f" {human_bytes(step.nbytes)}" if step.nbytes else ""
        for turn in range(step.turns + self._bench.warm):
            for entrant in self._bench.entrants:
                watch.at(f"{step.test}{size}, {entrant.name}")
                rows = self._take(entrant, step)
                if turn >= int(self._bench.warm):
                    taken += rows

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
            found = self._act(entrant, told, act)
            rows += [self._row(entrant, step, driver, *item) for item in (found or {}).items()]
        if rows and entrant.settings:
            self._tell_settings(entrant)
        return rows

    def _tell_settings(self, entrant: Entrant) -> None:
        """Once for a peer that has the same everywhere."""
        told: dict[str, str] = self._facts.setdefault("settings", {})
        same = entrant.impl != OURS and told.get(entrant.impl, entrant.settings) == entrant.settings
        told[entrant.impl if same else entrant.name] = entrant.settings

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
            placement=self._placement,
        )

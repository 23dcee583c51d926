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
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from zerohop.bench.placement import FREE, possible
from zerohop.bench.plan import Contender, FigureFailed, Options, Order, PeerFailed, Plan, Step
from zerohop.bench.plot import draw
from zerohop.bench.progress import Watch
from zerohop.bench.rows import OURS, Row, header, settled, write_json
from zerohop.bench.tables import UNSTEADY_NOTE, Part, Table, print_absences, print_part
from zerohop.bench.targets import Target, verdicts
from zerohop.host import human_bytes
from zerohop.local import RankFailed

ONE_CORE = "this process may use one core"
PASSES = 2  # over all steps
UNITS = {"bandwidth": "B/s", "rate": "1/s", "rss_per_peer": "B"}  # other metrics are seconds
ENDING = "its orderly end"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Entry:
    """Who takes a step: `contender` under the name `impl`, once by each of `drivers`.

    memory, route: of the rows. route of ours, if empty: what the contender's facts say; must_go: what they have to say.
    tests: its name of each test that it takes. None: all, by their own names; a contender may yet refuse.
    needed: without its facts there is nothing to measure. settings: what is set for it that users do not set by themselves.
    """

    impl: str
    contender: Contender
    drivers: Sequence[str] = ("python",)
    memory: str = "host"
    route: str = ""
    tests: Mapping[str, str] | None = None
    needed: bool = False
    must_go: str = ""
    settings: str = ""
    label: str = ""  # who it is in what is told, where the impl says too little

    @property
    def name(self) -> str:
        return self.label or self.impl


class Absences:
    """Who was not measured, where and why: (entry, test or "" for all) -> a sentence.

    failures: those that make the run a failure.
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], str] = {}
        self.failures: list[str] = []

    def note(self, name: str, test: str, reason: str) -> None:
        self.reasons.setdefault((name, test), reason)

    def covers(self, name: str, test: str) -> bool:
        return (name, "") in self.reasons or (name, test) in self.reasons

    def told(self) -> list[dict[str, str]]:
        """Those with a reason to tell, for the header of the rows."""
        return [
            {"impl": name, "test": test, "reason": reason}
            for (name, test), reason in self.reasons.items()
            if reason
        ]


@dataclass(frozen=True)
class Suite:
    """What a command measures, and what is told of it.

    parts: what is told apart, by the memory of its rows; those of the memory `shared` stand in each of them.
    targets: of each part. facts: those that are known before. warm: every step once more before, untimed.
    tell: in place of parts, of the rows of all placements. rings: what is told in the end of gda's, by their places.
    """

    name: str
    steps: Sequence[Step]
    entries: Sequence[Entry]
    tables: Sequence[Table] = ()
    targets: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    shared: str = ""
    plan: Plan = field(default_factory=Plan)
    facts: Mapping[str, Any] = field(default_factory=dict)
    absences: Absences = field(default_factory=Absences)
    warm: bool = False
    tell: Callable[[Sequence[Row]], Part] | None = None
    rings: Callable[[Sequence[Row], Mapping[str, Any]], Mapping[str, str]] | None = None

    def told(self, rows: Sequence[Row], placements: Sequence[str]) -> list[Part]:
        if self.tell is not None:
            return [self.tell(rows)]
        found = []
        for placement in placements:
            here = [row for row in rows if row.placement == placement]
            for memory, label in (self.parts or {"": ""}).items():
                those = [row for row in here if not label or row.memory in (memory, self.shared)]
                if not label or any(r.memory == memory and r.impl == OURS for r in those):
                    judged = verdicts(self.targets.get(memory, ()), those)
                    found.append(Part(label, those, self.tables, judged, placement))
        return found


Make = Callable[[Options], Suite]


@dataclass(frozen=True)
class Outcome:
    """Rows measured before a failure are told as well. `facts` go into the header of the rows."""

    suite: str = ""
    left_out: Sequence[int] = ()
    rows: Sequence[Row] = ()
    parts: Sequence[Part] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    absences: Sequence[Mapping[str, str]] = ()


def run_suite(make: Make, options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the files that are asked for; False when ours failed at anything."""
    outcome = conduct(make, options)
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    if outcome.left_out:
        say(f"Left out for want of memory: {', '.join(map(human_bytes, outcome.left_out))}.")
    for part in outcome.parts if outcome.rows else ():
        print_part(part, console)
    if not all(row.steady for row in outcome.rows):
        say(UNSTEADY_NOTE)
    for who, settings in outcome.facts.get("settings", {}).items():
        say(f"Set for {who}: {settings}")
    print_absences(outcome.absences, console)
    for what, said in outcome.facts.get("rings", {}).items():
        say(f"{what}: {said}")
    if outcome.rows:
        _write(outcome, options, console)
    if outcome.failure:
        console.print("[bold red]zerohop bench failed:[/]", escape(outcome.failure), soft_wrap=True)
    return not outcome.failure


def _write(outcome: Outcome, options: Options, console: Console) -> None:
    if options.json_path is not None:
        facts = dict(outcome.facts)
        if outcome.absences:
            facts["not_available"] = list(outcome.absences)
        write_json(options.json_path, header(outcome.suite, facts), outcome.rows)
        console.print(f"{len(outcome.rows)} rows and their header are in {options.json_path}")
    if options.plot_path is not None:
        shown = draw(options.plot_path, f"zerohop bench {outcome.suite}", outcome.parts)
        said = f"is in {options.plot_path}" if shown else "is left out: no figure has several sizes"
        console.print(f"The plot {said}.")


def conduct(make: Make, options: Options) -> Outcome:
    """Rows measured before a failure are kept."""
    placements = tuple(filter(possible, options.placements)) or (FREE,)
    try:
        suites = [make(replace(options, placement=placement)) for placement in placements]
    except (PeerFailed, RankFailed) as error:
        return Outcome(failure=str(error))
    rows: list[Row] = []
    suite = suites[0]
    facts = dict(suite.facts)
    failures = []
    told = [
        {"impl": "everybody", "test": placement, "reason": ONE_CORE}
        for placement in options.placements
        if placement not in placements
    ]
    with Watch(f"zerohop bench {suite.name}") as watch:
        for placement, each in zip(placements, suites, strict=True):
            try:
                Runner(each, placement, rows, facts).measure(watch)
            except (PeerFailed, RankFailed) as error:
                failures.append(str(error))
            failures += each.absences.failures
            told += [absence for absence in each.absences.told() if absence not in told]
    if suite.rings is not None:
        facts["rings"] = suite.rings(rows, facts)
    parts = suite.told(rows, placements)
    return Outcome(suite.name, suite.plan.left_out, rows, parts, facts, "; ".join(failures), told)


class Runner:
    """`rows` gathers the figures in the order of measurement, `facts` what the contenders say of themselves."""

    def __init__(
        self, suite: Suite, placement: str, rows: list[Row], facts: dict[str, Any]
    ) -> None:
        self._suite = suite
        self._placement = placement
        self._rows = rows
        self._facts = facts
        self._absences = suite.absences
        self._own: dict[str, Mapping[str, Any]] = {}  # by the entries' names
        firsts = {entry.contender: entry for entry in reversed(suite.entries)}
        self._firsts = list(reversed(firsts.values()))  # each contender's first entry

    def measure(self, watch: Watch) -> None:
        watch.expect(0)
        passes: list[list[Row]] = [[] for _ in range(PASSES)]
        with ExitStack() as stack:
            for entry in self._firsts:
                stack.enter_context(closing(entry.contender))
                watch.at(f"{entry.name} begins")
                self._guarded(entry, "", partial(entry.contender.start, self._placement))
            for entry in self._suite.entries:
                watch.at(f"asking {entry.name} for its settings")
                self._begin(entry)
            watch.expect(PASSES * len(self._suite.steps))
            try:
                for taken in passes:
                    for step in self._suite.steps:
                        self._take_turns(step, watch, taken)
                        watch.advance()
            finally:
                self._rows += settled(passes)
            for entry in self._firsts:
                entry.contender.resume()
                self._guarded(entry, ENDING, entry.contender.finish)

    def _guarded(self, entry: Entry, test: str, act: Callable[[], Result]) -> Result | None:
        """What `act` returns; None, and a note why, where a peer cannot. Raises RankFailed of ours alone."""
        ours = entry.contender.name == OURS
        try:
            return act()
        except PeerFailed as error:
            self._absences.note(entry.name, test, str(error))
            if ours and isinstance(error, FigureFailed):
                self._absences.failures.append(f"{test}: {error}")
        except RankFailed as error:
            if ours:
                raise
            said = " ".join(str(error).split())[:300]  # one line, for a table
            if test == ENDING:
                self._absences.note(entry.name, ENDING, said)
            else:  # what was measured before stays
                self._absences.note(entry.name, "", f"from {test} on: {said}" if test else said)
            entry.contender.close()
        return None

    def _act(self, entry: Entry, test: str, act: Callable[[], Result]) -> Result | None:
        """Its processes run meanwhile, those of all others do not."""
        entry.contender.resume()
        try:
            return self._guarded(entry, test, act)
        finally:
            entry.contender.pause()

    def _begin(self, entry: Entry) -> None:
        def look() -> Mapping[str, Any]:
            found = entry.contender.facts()
            if entry.must_go and found["route"] != entry.must_go:
                why = f"{found['route']}, not {entry.must_go}: {found['reason']}"
                raise PeerFailed(f"the route is {why}")
            return found

        if self._absences.covers(entry.name, ""):
            return
        found = self._act(entry, "", look)
        if found is None:
            if entry.needed:
                raise PeerFailed(self._absences.reasons.pop((entry.name, "")))
            return
        self._own[entry.name] = found
        for name, value in found.items():
            self._facts.setdefault(name, value)

    def _take_turns(self, step: Step, watch: Watch, taken: list[Row]) -> None:
        size = f" {human_bytes(step.nbytes)}" if step.nbytes else ""
        for turn in range(step.turns + self._suite.warm):
            for entry in self._suite.entries:
                watch.at(f"{step.test}{size}, {entry.name}")
                rows = self._take(entry, step)
                if turn >= int(self._suite.warm):
                    taken += rows

    def _take(self, entry: Entry, step: Step) -> list[Row]:
        test = step.test if entry.tests is None else entry.tests.get(step.test)
        rows: list[Row] = []
        if test is None or self._absences.covers(entry.name, ""):
            return rows
        for driver in entry.drivers:
            told = test if len(entry.drivers) == 1 else f"{test} from {driver}"
            if self._absences.covers(entry.name, told):
                continue
            order = Order(test, driver, step.nbytes, step.times)
            act = partial(entry.contender.measure, order, self._suite.plan.seconds)
            found = self._act(entry, told, act)
            rows += [self._row(entry, step, driver, *item) for item in (found or {}).items()]
        if rows and entry.settings:
            self._tell_settings(entry)
        return rows

    def _tell_settings(self, entry: Entry) -> None:
        """Once for a peer that has the same everywhere."""
        told: dict[str, str] = self._facts.setdefault("settings", {})
        same = entry.impl != OURS and told.get(entry.impl, entry.settings) == entry.settings
        told[entry.impl if same else entry.name] = entry.settings

    def _row(self, entry: Entry, step: Step, driver: str, metric: str, value: float) -> Row:
        own = self._own[entry.name] if entry.impl == OURS else {}
        return Row(
            suite=self._suite.name,
            test=step.test,
            route=entry.route or own.get("route", entry.impl),
            device=own.get("device", ""),
            memory=entry.memory,
            driver=driver,
            nbytes=step.nbytes,
            impl=entry.impl,
            metric=metric,
            value=value,
            unit=UNITS.get(metric, "s"),
            placement=self._placement,
        )

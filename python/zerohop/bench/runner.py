"""The common part of all commands of `zerohop bench`: steps, and the contenders that take each of them in turn.

Ours and theirs alternate at every figure of one run, so that a machine that warms up, throttles or gets
other work affects all of them; the others are stopped meanwhile. All figures are taken twice, and figures that
differ are marked. A contender that is missing, fails or hangs is reported and left out from then on.
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
PASSES = 2  # passes over all steps
UNITS = {"bandwidth": "B/s", "rate": "1/s", "rss_per_peer": "B"}  # other metrics are seconds
ENDING = "its shutdown"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Entry:
    """One contender in a step: `contender` under the name `impl`, once with each of `drivers`.

    memory, route: of the rows. An empty route of ours comes from the contender's facts, which must match must_go.
    tests: the contender's name for each test that it takes. None: all, by their own names; a contender may still refuse.
    needed: without its facts nothing can be measured. settings: those that users would not set themselves.
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
    label: str = ""  # name in reports, if the impl is not clear enough

    @property
    def name(self) -> str:
        return self.label or self.impl


class Absences:
    """Contenders that were not measured, where and why: (entry, test or "" for all) -> a sentence.

    failures: those that make the run a failure.
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], str] = {}
        self.failures: list[str] = []

    def note(self, name: str, test: str, reason: str) -> None:
        self.reasons.setdefault((name, test), reason)

    def covers(self, name: str, test: str) -> bool:
        return (name, "") in self.reasons or (name, test) in self.reasons

    def as_rows(self) -> list[dict[str, str]]:
        """Those with a reason, for the header of the rows."""
        return [
            {"impl": name, "test": test, "reason": reason}
            for (name, test), reason in self.reasons.items()
            if reason
        ]


@dataclass(frozen=True)
class Suite:
    """What a command measures and reports.

    parts: reported separately, by the memory of their rows; rows of the memory `shared` appear in each of them.
    targets: of each part. facts: those known in advance. warm: run every step once before, untimed.
    make_part: makes the parts instead, from the rows of all placements. rings: the final report of gda, by place of the rings.
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
    make_part: Callable[[Sequence[Row]], Part] | None = None
    rings: Callable[[Sequence[Row], Mapping[str, Any]], Mapping[str, str]] | None = None

    def report_parts(self, rows: Sequence[Row], placements: Sequence[str]) -> list[Part]:
        if self.make_part is not None:
            return [self.make_part(rows)]
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
    """Rows measured before a failure or Ctrl-C are reported as well. `facts` go into the header of the rows."""

    suite: str = ""
    left_out: Sequence[int] = ()
    rows: Sequence[Row] = ()
    parts: Sequence[Part] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    absences: Sequence[Mapping[str, str]] = ()
    interrupted: bool = False


def run_suite(make: Make, options: Options, console: Console) -> bool:
    """Measures, prints the tables, writes the requested files; False if ours failed anywhere. Raises KeyboardInterrupt after all that."""
    outcome = conduct(make, options)
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    if outcome.left_out:
        say(f"Left out for lack of memory: {', '.join(map(human_bytes, outcome.left_out))}.")
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
    if outcome.interrupted:
        say(
            f"Interrupted: {'these are the figures until then' if outcome.rows else 'there is no figure yet'}."
        )
        raise KeyboardInterrupt
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
    """Rows measured before a failure or Ctrl-C are kept."""
    placements = tuple(filter(possible, options.placements)) or (FREE,)
    try:
        suites = [make(replace(options, placement=placement)) for placement in placements]
    except (PeerFailed, RankFailed) as error:
        return Outcome(failure=str(error))
    rows: list[Row] = []
    suite = suites[0]
    facts = dict(suite.facts)
    failures, interrupted = [], False
    missing = [
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
            except KeyboardInterrupt:
                interrupted = facts["interrupted"] = True
            failures += each.absences.failures
            missing += [absence for absence in each.absences.as_rows() if absence not in missing]
            if interrupted:
                break
    if suite.rings is not None and not interrupted:
        facts["rings"] = suite.rings(rows, facts)
    parts = suite.report_parts(rows, placements)
    failure = "; ".join(failures)
    return Outcome(
        suite.name, suite.plan.left_out, rows, parts, facts, failure, missing, interrupted
    )


class Runner:
    """`rows` has the figures in the order of measurement, `facts` the facts of the contenders."""

    def __init__(
        self, suite: Suite, placement: str, rows: list[Row], facts: dict[str, Any]
    ) -> None:
        self._suite = suite
        self._placement = placement
        self._rows = rows
        self._facts = facts
        self._absences = suite.absences
        self._own: dict[str, Mapping[str, Any]] = {}  # by name of the entry
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
        """Returns the result of `act`; None, and a note with the reason, if a peer fails. Raises RankFailed only for ours."""
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
            else:  # earlier figures stay
                self._absences.note(entry.name, "", f"from {test} on: {said}" if test else said)
            entry.contender.close()
        return None

    def _act(self, entry: Entry, test: str, act: Callable[[], Result]) -> Result | None:
        """Only its own processes run meanwhile."""
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
            name = test if len(entry.drivers) == 1 else f"{test} from {driver}"
            if self._absences.covers(entry.name, name):
                continue
            order = Order(test, driver, step.nbytes, step.times)
            act = partial(entry.contender.measure, order, self._suite.plan.seconds)
            found = self._act(entry, name, act)
            rows += [self._row(entry, step, driver, *item) for item in (found or {}).items()]
        if rows and entry.settings:
            self._record_settings(entry)
        return rows

    def _record_settings(self, entry: Entry) -> None:
        """Once for a peer with the same settings everywhere."""
        recorded: dict[str, str] = self._facts.setdefault("settings", {})
        same = entry.impl != OURS and recorded.get(entry.impl, entry.settings) == entry.settings
        recorded[entry.impl if same else entry.name] = entry.settings

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

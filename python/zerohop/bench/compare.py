"""`zerohop bench compare`: the changes from one file of rows to another, and which of them exceed the noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.bench.placement import FREE
from zerohop.bench.rows import DRIVERS, OURS, Row, read_json
from zerohop.bench.tables import UNSTEADY_MARK
from zerohop.host import decimal_bytes, human_bytes, human_seconds

RATES = ("B/s", "1/s")  # units in which more is better; in all others less is
MACHINE = ("cpu", "cores", "kernel", "python", "numpy", "zerohop", "gpus", "device")
MARKS = {"better": "[green]better[/]", "worse": "[bold red]worse[/]", "noise": "", "?": "?"}


@dataclass(frozen=True)
class Change:
    """One figure, before and after."""

    before: Row
    after: Row

    @property
    def ratio(self) -> float:
        """The relative change: 0.1 is 10 % more."""
        return self.after.value / self.before.value - 1 if self.before.value else 0.0

    @property
    def loss(self) -> float:
        """How much worse the figure became: the relative growth of a time, or loss of a rate."""
        return -self.ratio if self.before.unit in RATES else self.ratio

    @property
    def verdict(self) -> str:
        """ "?": it was taken once in either file, so its noise is unknown."""
        if min(self.before.turns, self.after.turns) == 1:
            return "?"
        spread = self.before.spread + self.after.spread
        if abs(self.after.value - self.before.value) <= spread:
            return "noise"
        return "worse" if self.loss > 0 else "better"

    def fails(self, limit: float) -> bool:
        """Whether a figure of ours is worse by more than `limit`, unless known noise explains it."""
        return self.before.impl == OURS and self.loss > limit and self.verdict != "noise"


def run(before: Path, after: Path, limit: float | None, console: Console) -> bool:
    """Prints the changes; False if a figure of ours is beyond the given limit, or missing.

    Raises ValueError for files without rows.
    """
    (head_a, rows_a), (head_b, rows_b) = read_json(before), read_json(after)
    _print_machines(head_a, head_b, console)
    changes, gone, new = changes_of(rows_a, rows_b)
    shown = [change for change in changes if change.verdict != "noise"]
    if shown:
        console.print(_table(shown))
    console.print(_summary(changes, gone, new), soft_wrap=True)
    for said in _moves(changes):
        console.print(said, soft_wrap=True, markup=False)
    if limit is None:
        return True
    failing = [change for change in changes if change.fails(limit)]
    for change in failing:
        said = f"{_name(change.before)}: worse by {change.loss:.1%}"
        console.print(f"[bold red]beyond {limit * 100:g}%:[/]", escape(said), soft_wrap=True)
    lost = [row for row in gone if row.impl == OURS]
    for row in lost:
        said = f"{_name(row)}, by {row.route}"
        console.print("[bold red]gone:[/]", escape(said), soft_wrap=True)
    return not failing and not lost


def changes_of(
    before: Iterable[Row], after: Iterable[Row]
) -> tuple[list[Change], list[Row], list[Row]]:
    """(figures in both files, those only in the first, those only in the second).

    A figure that went by another route in the second file counts as in both.
    """
    old, new = ({_key(row): row for row in rows} for rows in (before, after))
    left = _by_purpose(row for key, row in old.items() if key not in new)
    come = _by_purpose(row for key, row in new.items() if key not in old)
    # With several routes left on either side it is unknown which replaced which.
    moved = [key for key, rows in left.items() if len(rows) == len(come.get(key, ())) == 1]
    changes = [Change(row, new[key]) for key, row in old.items() if key in new]
    for key in moved:
        changes.append(Change(*left.pop(key), *come.pop(key)))
    return changes, list(chain(*left.values())), list(chain(*come.values()))


def _key(row: Row) -> Row:
    """Identifies the measurement; without the device, whose name may differ between machines."""
    return dataclasses.replace(row, value=0.0, device="", turns=1, spread=0.0, steady=True)


def _by_purpose(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Rows by what they measure, whatever the route."""
    found: dict[Row, list[Row]] = {}
    for row in rows:
        found.setdefault(dataclasses.replace(_key(row), route=""), []).append(row)
    return found


def _moves(changes: Iterable[Change]) -> list[str]:
    """A sentence for each change of a route, with its tests."""
    tests: dict[tuple[str, str, str], dict[str, None]] = {}
    for change in changes:
        old, new = change.before, change.after
        if old.route != new.route:
            where = f"{old.suite} {old.test}" + (f" ({old.memory})" if old.memory else "")
            tests.setdefault((old.impl, old.route, new.route), {})[where] = None
    return [
        f"The route of {impl} changed from {old} to {new}: {', '.join(names)}."
        for (impl, old, new), names in tests.items()
    ]


def _name(row: Row) -> str:
    size = f" {human_bytes(row.nbytes)}" if row.nbytes else ""
    placed = f", {row.placement}" if row.placement != FREE else ""
    memory = f", memory {row.memory}" if row.memory else ""
    driver = DRIVERS.get(row.driver, row.driver)
    return f"{row.suite} {row.test}{size}, {row.impl} {driver}, {row.metric}{memory}{placed}"


def _print_machines(before: Mapping[str, Any], after: Mapping[str, Any], console: Console) -> None:
    """The differences between the two runs, which may explain changes."""
    differ = [
        f"{name}: {before.get(name, 'none')} and {after.get(name, 'none')}"
        for name in MACHINE
        if before.get(name) != after.get(name)
    ]
    if differ:
        console.print(f"The runs differ in {'; '.join(differ)}.", soft_wrap=True, markup=False)


def _summary(changes: Sequence[Change], gone: Sequence[Row], new: Sequence[Row]) -> str:
    counts = {name: sum(c.verdict == name for c in changes) for name in MARKS}
    moved = f"{counts['better']} better, {counts['worse']} worse, {counts['noise']} within noise, not shown"
    said = [f"{len(changes)} figures are in both files: {moved}"]
    if counts["?"]:
        said.append(f"{counts['?']} were taken once, so their noise is unknown")
    unsteady = sum(not (c.before.steady and c.after.steady) for c in changes)
    if unsteady:
        said.append(f"{unsteady} are unsteady ({UNSTEADY_MARK}) in either of them")
    if gone or new:
        said.append(f"{len(gone)} are only in the first file, {len(new)} only in the second")
    return "; ".join(said) + "."


def _table(changes: Sequence[Change]) -> Table:
    """The name of a figure is one column, the only one that is folded."""
    table = Table(title="changes", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("figure", overflow="fold")
    for name in ("before", "after", "change", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for change in changes:
        values = map(_value, (change.before, change.after))
        named = escape(_name(change.before))
        table.add_row(named, *values, f"{change.ratio:+.1%}", MARKS[change.verdict])
    return table


def _value(row: Row) -> str:
    mark = "" if row.steady else UNSTEADY_MARK
    if row.unit in ("B/s", "B"):
        return mark + (
            f"{decimal_bytes(row.value)}/s" if row.unit == "B/s" else human_bytes(row.value)
        )
    return mark + (human_seconds(row.value) if row.unit == "s" else f"{row.value:.4g} {row.unit}")

"""The closing tables of a benchmark: ours next to theirs, with ratios, the targets, and the missing contenders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from zerohop.bench.rows import DRIVERS, OURS, UNSTEADY, Row
from zerohop.bench.targets import Verdict
from zerohop.host import human_bytes, human_seconds

MARKS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: "[yellow]not measured[/]"}
BELOW = {"p50": "p99", "per_call": "p99"}  # what a cell shows below its metric
TITLED = {
    "bandwidth": ", GB/s",
    "rate": ", millions a second",
    "p50": ": p50, below it p99",
    "per_call": ": median, below it p99",
}
UNSTEADY_MARK = "~"
UNSTEADY_NOTE = f"{UNSTEADY_MARK} taken twice, with all others in between, the figure differed by more than {UNSTEADY:.0%}."
Cells = dict[str, dict[str, Row]]  # line: column: figure


@dataclass(frozen=True)
class Table:
    """The layout of a table. line: the line of a row, if any. column: the column of a row; default: the contender.

    over_size: each line is a size, so the table can also be drawn.
    """

    title: str
    metric: str
    line: Callable[[Row], str | None]
    column: Callable[[Row], str] | None = None
    over_size: bool = False

    def cells(self, rows: Iterable[Row], metric: str = "") -> Cells:
        """Lines and columns in the order of measurement. metric: another metric than the table's."""
        here = [row for row in rows if self.line(row) is not None]
        column = self.column or _who(here)
        found: Cells = {}
        for row in here:
            if row.metric == (metric or self.metric):
                found.setdefault(self.line(row) or "", {})[column(row)] = row
        return found


def over_sizes(test: str, title: str, metric: str = "bandwidth") -> Table:
    """A table with a line for each size of the test."""

    def line(row: Row) -> str | None:
        return human_bytes(row.nbytes) if row.test == test else None

    return Table(title, metric, line, over_size=True)


def listed(title: str, metric: str, lines: Mapping[tuple[str, int], str]) -> Table:
    """A table with a line for each test and size, and its label."""
    return Table(title, metric, lambda row: lines.get((row.test, row.nbytes)))


def _who(rows: Sequence[Row]) -> Callable[[Row], str]:
    """Columns by contender; ours by driver, if figures were taken by several."""
    drivers: dict[tuple[str, int], set[str]] = {}
    for row in rows:
        if row.impl == OURS:
            drivers.setdefault((row.test, row.nbytes), set()).add(row.driver)
    several = max(map(len, drivers.values()), default=0) > 1
    return lambda row: (
        DRIVERS.get(row.driver, row.driver) if row.impl == OURS and several else row.impl
    )


@dataclass(frozen=True)
class Part:
    """Rows that are reported together; `label` names ours if there are several parts."""

    label: str
    rows: Sequence[Row]
    tables: Sequence[Table]
    judged: Sequence[Verdict]
    placement: str = ""  # of the ends, if there is only one


def columns_of(cells: Cells) -> list[str]:
    """Columns in the order of the line that has most of them."""
    most = max(cells.values(), key=len, default={})
    return list(dict.fromkeys(name for line in (most, *cells.values()) for name in line))


def print_part(part: Part, console: Console) -> None:
    if part.label:
        console.rule(part.label)
    ends = f"; ends: {part.placement}" if part.placement else ""
    for table in part.tables:
        cells = table.cells(part.rows)
        if cells:
            below = table.cells(part.rows, BELOW.get(table.metric, "nothing"))
            _print_table(table, cells, below, ends, console)
    if part.judged:
        grid = Grid("target", "measured", "", title="targets", title_justify="left")
        for verdict in part.judged:
            mark = f"[yellow]{verdict.unjudged}[/]" if verdict.unjudged else MARKS[verdict.met]
            grid.add_row(verdict.target, verdict.measured, mark)
        console.print(grid)


def _print_table(table: Table, cells: Cells, below: Cells, ends: str, console: Console) -> None:
    """Narrow, because many columns must fit and no digit may be cut."""
    columns = columns_of(cells)
    first = columns[0]
    others = [name for name in columns[1:] if name != DRIVERS["python"]]
    if table.column or first not in (OURS, *DRIVERS.values()):
        others = []
    ours = OURS if first == OURS else f"{OURS} {first}"
    ratios = f" (ratios: {ours} / theirs)" if others else ""
    title = f"{table.title}{TITLED.get(table.metric, '')}{ratios}{ends}"
    grid = Grid(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("nbytes" if table.over_size else "", overflow="fold")
    for name in (*columns, *(f"/ {other}" for other in others)):
        grid.add_column(name, justify="right", overflow="fold")
    for line, found in cells.items():
        more = below.get(line, {})
        shown = [
            "\n".join(cell(each[name]) for each in (found, more) if name in each)
            for name in columns
        ]
        against = [_ratio(found.get(first), found.get(other)) for other in others]
        grid.add_row(line, *shown, *against)
    console.print(grid)


def cell(row: Row) -> str:
    """The value, with a mark if it is unsteady."""
    mark = "" if row.steady else UNSTEADY_MARK
    if row.metric == "bandwidth":
        return f"{mark}{row.value / 1e9:.3g}"
    return mark + (f"{row.value / 1e6:.4g}" if row.metric == "rate" else human_seconds(row.value))


def _ratio(ours: Row | None, theirs: Row | None) -> str:
    return f"{ours.value / theirs.value:.2f}" if ours and theirs and theirs.value else ""


def print_absences(absences: Sequence[Mapping[str, str]], console: Console) -> None:
    """A sentence for each contender that was not measured: "impl", "test" (empty: everywhere), "reason"."""
    if not absences:
        return
    grid = Grid(title="not available", title_justify="left")
    for name in ("who", "what", "reason"):
        grid.add_column(name, overflow="fold")
    for absence in absences:
        grid.add_row(absence["impl"], absence["test"] or "everything", escape(absence["reason"]))
    console.print(grid)

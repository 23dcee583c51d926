"""The closing tables of a benchmark: ours beside theirs, with ratios, the targets, and who was missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.bench.rows import DRIVERS, UNSTEADY, Figures, Row
from zerohop.bench.targets import Verdict
from zerohop.bench.turns import OURS
from zerohop.host import human_bytes, human_seconds

PEERS = (
    *("ucx", "mpi", "nixl", "gloo", "iperf3", "tcp"),
    *("raw", "perftest", "torch", "nccl", "bare", "nvshmem"),
)
MARKS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: "[yellow]not measured[/]"}
BELOW = {"p50": "p99", "per_call": "p99"}  # what a cell shows below what it is of
UNSTEADY_MARK = "~"
UNSTEADY_NOTE = f"{UNSTEADY_MARK} taken twice, with all others in between, it differed by more than {UNSTEADY:.0%}."


@dataclass(frozen=True)
class View:
    """What a table, or a panel of the plot, shows over the size of the message."""

    test: str
    title: str
    metric: str = "bandwidth"

    @property
    def is_rate(self) -> bool:
        return self.metric == "bandwidth"


@dataclass(frozen=True)
class Sheet:
    """What a table shows of tests that have one size each, a line for each of them."""

    title: str
    metric: str
    lines: Sequence[tuple[str, str, int]]  # what it says, test, nbytes


@dataclass(frozen=True)
class Grid:
    """A table as it is: what the first column is called, the other columns, and a line for each."""

    title: str
    head: str
    columns: Sequence[str]
    lines: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Part:
    """Figures that are told together; `label` says what is ours in them where there are several.

    notes: sentences on how they were measured, below the tables.
    """

    label: str
    figures: Figures
    views: Sequence[View]
    judged: Sequence[Verdict]
    sheets: Sequence[Sheet] = ()
    notes: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    placement: str = ""  # of the ends, where it is one


def print_report(part: Part, console: Console) -> None:
    figures = part.figures
    ends = f"; ends: {part.placement}" if part.placement else ""
    for grid in part.grids:
        console.print(_grid_table(grid))
    for view in part.views:
        if lines(figures, view):
            console.print(_table_of(figures, view, ends))
    for sheet in part.sheets:
        if any(figures.by_size(test, sheet.metric) for _, test, _ in sheet.lines):
            console.print(_sheet_table(figures, sheet, ends))
    if part.judged:
        console.print(_targets_table(part.judged))
    for note in part.notes:
        console.print(note, soft_wrap=True, markup=False)


def print_absences(absences: Sequence[Mapping[str, str]], console: Console) -> None:
    """A sentence for each who was not measured: "impl", "test" (empty: everywhere), "reason"."""
    if not absences:
        return
    table = Table(title="not available", title_justify="left")
    for name in ("who", "what", "reason"):
        table.add_column(name, overflow="fold")
    for absence in absences:
        what = absence["test"] or "everything"
        table.add_row(absence["impl"], what, escape(absence["reason"]))
    console.print(table)


def lines(figures: Figures, view: View) -> dict[str, dict[int, float]]:
    """The value over the size of each who was measured: ours by driver ("C++", "Python"), then theirs."""
    test, metric = view.test, view.metric
    found = {name: figures.by_size(test, metric, driver=loop) for loop, name in DRIVERS.items()}
    found |= {impl: figures.by_size(test, metric, impl) for impl in PEERS}
    return {name: values for name, values in found.items() if values}


def _table(title: str, head: str | None, columns: Sequence[str]) -> Table:
    """Narrow, as many columns have to fit, and no digit is left out. head: of a first column of words, if there is one."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    if head is not None:
        table.add_column(head, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _grid_table(grid: Grid) -> Table:
    table = _table(grid.title, grid.head, grid.columns)
    for said, cells in grid.lines:
        table.add_row(said, *cells)
    return table


def _table_of(figures: Figures, view: View, ends: str) -> Table:
    found = lines(figures, view)
    ours = [(driver, name) for driver, name in DRIVERS.items() if name in found]
    peers = [name for name in found if name in PEERS]
    first = ours[0][1] if ours else ""
    ratios = f" (ratios: zerohop {first} / theirs)" if peers and ours else ""
    title = f"{view.title}{_unit(view.metric)}{ratios}{ends}"
    columns = [*(name for _, name in ours), *peers, *(f"/ {impl}" for impl in peers if ours)]
    table = _table(title, None, ["nbytes", *columns])
    mine = [cells(figures, view.test, view.metric, OURS, driver) for driver, _ in ours]
    theirs = [cells(figures, view.test, view.metric, impl) for impl in peers]
    for nbytes in figures.sizes(view.test):
        shown = [column.get(nbytes, "") for column in (*mine, *theirs)]
        first_of_ours = found[first].get(nbytes) if ours else None
        against = [_ratio(first_of_ours, found[impl].get(nbytes)) for impl in peers if ours]
        table.add_row(human_bytes(nbytes), *shown, *against)
    return table


def _unit(metric: str) -> str:
    below = {"p50": ": p50, below it p99", "per_call": ": median, below it p99"}
    return {"bandwidth": ", GB/s", "rate": ", millions a second", **below}.get(metric, "")


def cells(
    figures: Figures, test: str, metric: str, impl: str, driver: str | None = None
) -> dict[int, str]:
    """By size, what a table shows: below a median there is the 99th percentile."""
    below = figures.rows_by_size(test, BELOW.get(metric, ""), impl, driver)
    return {
        nbytes: "\n".join(cell(each) for each in (row, below.get(nbytes)) if each is not None)
        for nbytes, row in figures.rows_by_size(test, metric, impl, driver).items()
    }


def cell(row: Row) -> str:
    """Its value, and a mark if that was another when it was taken again."""
    show = {"bandwidth": _rate, "rate": _millions}.get(row.metric, human_seconds)
    return ("" if row.steady else UNSTEADY_MARK) + show(row.value)


def _sheet_table(figures: Figures, sheet: Sheet, ends: str) -> Table:
    found = sheet_columns(figures, sheet)
    ours, *peers = found
    columns = ["nbytes", *found, *(f"/ {impl}" for impl in peers)]
    table = _table(f"{sheet.title}{_unit(sheet.metric)}{ends}", "", columns)
    for i, (said, test, nbytes) in enumerate(sheet.lines):
        mine, theirs = found[ours][i], [found[impl][i] for impl in peers]
        shown = [cells(figures, test, sheet.metric, *_who(name)).get(nbytes, "") for name in found]
        table.add_row(said, human_bytes(nbytes), *shown, *(_ratio(mine, v) for v in theirs))
    return table


def _who(heading: str) -> tuple[str, str | None]:
    """(impl, driver) of a column."""
    driver = next((loop for loop, name in DRIVERS.items() if name == heading), None)
    return (heading, None) if driver is None else (OURS, driver)


def sheet_columns(figures: Figures, sheet: Sheet) -> dict[str, list[float | None]]:
    """What each who was measured has on the sheet's lines: ours first, from Python where C++ has it, too."""

    def column(impl: str, driver: str | None = None) -> list[float | None]:
        return [
            figures.by_size(test, sheet.metric, impl, driver).get(nbytes)
            for _, test, nbytes in sheet.lines
        ]

    python, cpp = column("zerohop", "python"), column("zerohop", "cpp")
    if any(mine and other for mine, other in zip(python, cpp, strict=True)):
        found = {"Python": python, "C++": cpp}
    else:
        drivers = [name for loop, name in DRIVERS.items() if any(column("zerohop", loop))]
        found = {drivers[0] if len(drivers) == 1 else "zerohop": column("zerohop")}
    theirs = {impl: column(impl) for impl in PEERS}
    return found | {impl: values for impl, values in theirs.items() if any(values)}


def _targets_table(judged: Sequence[Verdict]) -> Table:
    table = Table(title="targets", title_justify="left")
    for name in ("target", "measured", ""):
        table.add_column(name)
    for verdict in judged:
        mark = f"[yellow]{verdict.unjudged}[/]" if verdict.unjudged else MARKS[verdict.met]
        table.add_row(verdict.target, verdict.measured, mark)
    return table


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g}"


def _millions(per_second: float) -> str:
    return f"{per_second / 1e6:.4g}"


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""

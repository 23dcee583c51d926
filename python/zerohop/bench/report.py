"""The closing tables of a benchmark: ours beside theirs, with ratios, the targets, and who was missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.bench.rows import DRIVERS, Figures
from zerohop.bench.targets import Verdict
from zerohop.host import human_bytes, human_seconds

PEERS = (
    *("ucx", "mpi", "nixl", "gloo", "iperf3", "tcp"),
    *("raw", "perftest", "torch", "nccl", "bare", "nvshmem"),
)
MARKS = {True: "[green]met[/]", False: "[bold red]missed[/]", None: "[yellow]not measured[/]"}
SPREAD = ("p90", "p99", "mean")  # shown of ours where the metric is p50


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


def print_report(part: Part, console: Console) -> None:
    figures = part.figures
    for view in part.views:
        if lines(figures, view):
            console.print(_table_of(figures, view))
    for sheet in part.sheets:
        if any(figures.by_size(test, sheet.metric) for _, test, _ in sheet.lines):
            console.print(_sheet_table(figures, sheet))
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


def _table_of(figures: Figures, view: View) -> Table:
    found = lines(figures, view)
    ours = [(driver, name) for driver, name in DRIVERS.items() if name in found]
    peers = [name for name in found if name in PEERS]
    driver, first = ours[0] if ours else ("", "")
    spread = SPREAD if view.metric == "p50" and ours else ()
    unit = ", GB/s" if view.is_rate else ""
    ratios = f" (ratios: zerohop {first} / theirs)" if peers and ours else ""
    heads = [*((first,) if ours else ()), *spread, *(name for _, name in ours[1:])]
    if spread:
        heads[0] += " p50"
    columns = ("nbytes", *heads, *peers, *(f"/ {impl}" for impl in peers if ours))
    table = Table(title=f"{view.title}{unit}{ratios}", title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    show = _rate if view.is_rate else _time
    for nbytes in figures.sizes(view.test):
        mine = found[first].get(nbytes) if ours else None
        more = [figures.get(view.test, metric, nbytes, driver=driver) for metric in spread]
        others = [found[name].get(nbytes) for _, name in ours[1:]]
        theirs = [found[impl].get(nbytes) for impl in peers]
        table.add_row(
            human_bytes(nbytes),
            *(show(value) for value in ((mine, *more, *others) if ours else ())),
            *(show(value) for value in theirs),
            *(_ratio(mine, value) for value in theirs if ours),
        )
    return table


def _sheet_table(figures: Figures, sheet: Sheet) -> Table:
    found = sheet_columns(figures, sheet)
    ours, *peers = found
    unit = {"bandwidth": ", GB/s", "rate": ", millions a second"}.get(sheet.metric, "")
    table = Table(title=f"{sheet.title}{unit}", title_justify="left")
    table.add_column("")
    for name in ("nbytes", *found, *(f"/ {impl}" for impl in peers)):
        table.add_column(name, justify="right")
    show = {"bandwidth": _rate, "rate": _millions}.get(sheet.metric, _time)
    for i, (said, _, nbytes) in enumerate(sheet.lines):
        mine, theirs = found[ours][i], [found[impl][i] for impl in peers]
        shown = [show(value) for value in (mine, *theirs)]
        table.add_row(said, human_bytes(nbytes), *shown, *(_ratio(mine, v) for v in theirs))
    return table


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


def _time(seconds: float | None) -> str:
    return "" if seconds is None else human_seconds(seconds)


def _rate(bytes_per_second: float | None) -> str:
    return "" if bytes_per_second is None else f"{bytes_per_second / 1e9:.3g}"


def _millions(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second / 1e6:.4g}"


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""

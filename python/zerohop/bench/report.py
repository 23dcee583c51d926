"""The closing tables of the benchmark: ours beside theirs, with ratios, and the targets."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from zerohop.bench.plan import BLOCK_TESTS
from zerohop.bench.rows import Figures
from zerohop.bench.targets import verdicts
from zerohop.host import human_bytes, human_seconds

PEERS = ("ucx", "iperf3", "tcp")


def print_report(figures: Figures, console: Console) -> None:
    if figures.sizes("latency"):
        console.print(_latency_table(figures))
    for test in ("write", "read", "send", *BLOCK_TESTS):
        if figures.sizes(test):
            console.print(_bandwidth_table(figures, test))
    console.print(_targets_table(figures))


def _peers_of(figures: Figures, test: str, metric: str) -> list[str]:
    return [
        impl
        for impl in PEERS
        if any(figures.get(test, metric, size, impl) for size in figures.sizes(test))
    ]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _latency_table(figures: Figures) -> Table:
    peers = _peers_of(figures, "latency", "p50")
    table = _table(
        "write + notify, half round trip (ratios: zerohop C++ p50 / theirs)",
        *("nbytes", "C++ p50", "p90", "p99", "mean", "Python p50"),
        *peers,
        *(f"/ {impl}" for impl in peers),
    )
    for nbytes in figures.sizes("latency"):
        ours = [figures.get("latency", m, nbytes) for m in ("p50", "p90", "p99", "mean")]
        python = figures.get("latency", "p50", nbytes, driver="python")
        theirs = [figures.get("latency", "p50", nbytes, impl) for impl in peers]
        table.add_row(
            human_bytes(nbytes),
            *(_time(value) for value in (*ours, python, *theirs)),
            *(_ratio(ours[0], value) for value in theirs),
        )
    return table


def _bandwidth_table(figures: Figures, test: str) -> Table:
    peers = _peers_of(figures, test, "bandwidth")
    table = _table(
        f"{test} bandwidth, GB/s" + (" (ratios: zerohop C++ / theirs)" if peers else ""),
        *("nbytes", "C++", "Python", *peers),
        *(f"/ {impl}" for impl in peers),
    )
    for nbytes in figures.sizes(test):
        ours = [figures.get(test, "bandwidth", nbytes, driver=d) for d in ("cpp", "python")]
        theirs = [figures.get(test, "bandwidth", nbytes, impl) for impl in peers]
        table.add_row(
            human_bytes(nbytes),
            *(_rate(value) for value in (*ours, *theirs)),
            *(_ratio(ours[0], value) for value in theirs),
        )
    return table


def _targets_table(figures: Figures) -> Table:
    table = Table(title="targets", title_justify="left")
    for name in ("target", "measured", ""):
        table.add_column(name)
    for verdict in verdicts(figures):
        mark = "[green]met[/]" if verdict.met else "[bold red]missed[/]"
        table.add_row(verdict.target, verdict.measured, mark)
    return table


def _time(seconds: float | None) -> str:
    return "" if seconds is None else human_seconds(seconds)


def _rate(bytes_per_second: float | None) -> str:
    return "" if bytes_per_second is None else f"{bytes_per_second / 1e9:.3g}"


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""

"""What tests/vm/bench measured, as a table, and what the figures should be.

Each constant is a figure of "Speed, in the rig" in the issue that asked for real RDMA.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from zerohop.bench.rows import Figures
from zerohop.bench.targets import Verdict
from zerohop.host import human_bytes, human_seconds

BANDWIDTH_RATIO = 0.97  # "write bandwidth at 64 KiB and 1 MiB at least 0.97 of ib_write_bw"
LATENCY_NBYTES, LATENCY_RATIO = 8, 1.05  # "8 B write latency at most 1.05 of ib_write_lat from C++"
PYTHON_ADDS_S = 2e-6  # "Python at most 2 us above it on a native clock"
RAILS_RATIO = 1.7  # "two rails at least 1.7 of one where the rig's CPUs allow, else equal shares"
CORES_FOR_RAILS = 8  # two guests of two processors are busy with one rail already
SHARE_TOLERANCE = 0.01  # of all bytes
REGISTER_S = 2e-6  # "Registration with a warm cache at most 2 us"


def verdicts(figures: Figures, cores: int) -> list[Verdict]:
    """One for each target of which everything needed was measured; cores: of the host of the guests."""
    return [
        *_bandwidths(figures),
        *_latency(figures),
        *_python(figures),
        *_rails(figures, cores),
        *_registration(figures),
    ]


def _bandwidths(figures: Figures) -> Iterator[Verdict]:
    for nbytes in figures.sizes("write"):
        ours = figures.get("write", "bandwidth", nbytes)
        theirs = figures.get("write", "bandwidth", nbytes, "perftest")
        if ours and theirs:
            yield Verdict(
                f"write bandwidth, {human_bytes(nbytes)} / ib_write_bw >= {BANDWIDTH_RATIO:g}",
                f"{ours / theirs:.3f} ({_rate(ours)} to {_rate(theirs)})",
                ours >= BANDWIDTH_RATIO * theirs,
            )


def _latency(figures: Figures) -> Iterator[Verdict]:
    ours = figures.get("write_latency", "p50", LATENCY_NBYTES)
    theirs = figures.get("write_latency", "p50", LATENCY_NBYTES, "perftest")
    if ours and theirs:
        yield Verdict(
            f"{LATENCY_NBYTES} B write latency, C++ / ib_write_lat <= {LATENCY_RATIO:g}",
            f"{ours / theirs:.3f} ({human_seconds(ours)} to {human_seconds(theirs)})",
            ours <= LATENCY_RATIO * theirs,
        )


def _python(figures: Figures) -> Iterator[Verdict]:
    python = figures.get("native_latency", "p50", LATENCY_NBYTES, driver="python")
    cpp = figures.get("native_latency", "p50", LATENCY_NBYTES)
    if python and cpp:
        yield Verdict(
            f"latency, Python - C++ (native clock, soft0) <= {human_seconds(PYTHON_ADDS_S)}",
            f"{(python - cpp) * 1e6:.2f} us ({human_seconds(python)} - {human_seconds(cpp)})",
            python - cpp <= PYTHON_ADDS_S,
        )


def _rails(figures: Figures, cores: int) -> Iterator[Verdict]:
    for nbytes in figures.sizes("two_rails"):
        one = figures.get("one_rail", "bandwidth", nbytes)
        two = figures.get("two_rails", "bandwidth", nbytes)
        moved = [figures.get("two_rails", f"rail{i}_bytes", nbytes) or 0.0 for i in (0, 1)]
        if not one or not two or not sum(moved):
            continue
        share = moved[0] / sum(moved)
        equal = abs(share - 0.5) <= SHARE_TOLERANCE
        measured = f"{two / one:.2f} ({_rate(two)} to {_rate(one)}), shares {share:.3f}"
        if cores >= CORES_FOR_RAILS:
            yield Verdict(f"two rails / one >= {RAILS_RATIO:g}", measured, two >= RAILS_RATIO * one)
        else:
            target = f"two rails / one >= {RAILS_RATIO:g}, or, on {cores} cores, equal shares"
            yield Verdict(target, measured, equal or two >= RAILS_RATIO * one)


def _registration(figures: Figures) -> Iterator[Verdict]:
    seconds = figures.get("native_warm_register", "per_call", 0, driver="python")
    if seconds:
        yield Verdict(
            f"register, warm (native clock) <= {human_seconds(REGISTER_S)}",
            human_seconds(seconds),
            seconds <= REGISTER_S,
        )


def print_report(figures: Figures, judged: list[Verdict], console: Console) -> None:
    console.print(_beside_perftest(figures))
    table = Table(title="targets", title_justify="left")
    for name in ("target", "measured", ""):
        table.add_column(name)
    for verdict in judged:
        mark = "[green]met[/]" if verdict.met else "[bold red]missed[/]"
        table.add_row(verdict.target, verdict.measured, mark)
    console.print(table)


def _beside_perftest(figures: Figures) -> Table:
    """Ours, theirs and the ratio; a latency with notification has nothing to stand beside."""
    table = Table(title="zerohop beside perftest in one guest", title_justify="left")
    for name in ("figure", "perftest", "C++", "ratio", "Python", "ratio"):
        table.add_column(name, justify="right")
    lines = [
        (f"write {human_bytes(nbytes)}", "write", "bandwidth", nbytes)
        for nbytes in figures.sizes("write")
    ]
    for test, words in (("write_latency", "write"), ("latency", "write + notify")):
        for metric in ("p50", "mean", "p99"):
            lines.append((f"{words} 8 B, {metric}", test, metric, LATENCY_NBYTES))
    for name, test, metric, nbytes in lines:
        text = _rate if metric == "bandwidth" else human_seconds
        theirs = figures.get(test, metric, nbytes, "perftest")
        if not theirs and not figures.get(test, metric, nbytes):
            continue
        cells = [name, text(theirs) if theirs else ""]
        for driver in ("cpp", "python"):
            ours = figures.get(test, metric, nbytes, driver=driver)
            cells += [
                text(ours) if ours else "",
                f"{ours / theirs:.2f}" if ours and theirs else "",
            ]
        table.add_row(*cells)
    register = figures.get("warm_register", "per_call", 0, driver="python")
    if register:
        table.add_row("register, warm", "", "", "", human_seconds(register), "")
    return table


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.1f} MB/s"

"""The tables of `zerohop bench wait`: the ping-pong by placement, the calls of a job by who makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zerohop.bench.placement import APART, PLACEMENTS
from zerohop.bench.report import Grid, Part, cell
from zerohop.bench.rows import Figures, Row
from zerohop.bench.turns import OURS
from zerohop.bench.wait.plan import LATENCY, NBYTES
from zerohop.bench.wait.targets import verdicts
from zerohop.host import human_bytes

METRICS = ("p50", "p99")
Cell = tuple[str, str, int, str]  # placement, test, nbytes, who


def parts(rows: Sequence[Row]) -> Sequence[Part]:
    shown = cells(rows)
    grids = [ping_pong(shown), *jobs(shown, rows)]
    return (Part("", Figures(()), (), verdicts(rows), grids=[g for g in grids if g.lines]),)


def who(row: Row) -> str:
    """As the tables call it: of ours, the route decides in the ping-pong."""
    if row.impl != OURS or row.test != LATENCY:
        return row.impl
    return f"{OURS} {'p2p' if row.route == 'p2p' else 'soft0'}"


def cells(rows: Iterable[Row]) -> dict[Cell, str]:
    """p50, and below it p99."""
    found: dict[Cell, dict[str, str]] = {}
    for row in rows:
        key = (row.placement, row.test, row.nbytes, who(row))
        found.setdefault(key, {})[row.metric] = cell(row)
    return {
        key: "\n".join(shown.get(metric, "") for metric in METRICS) for key, shown in found.items()
    }


def ping_pong(shown: dict[Cell, str]) -> Grid:
    keys = [key for key in shown if key[1] == LATENCY]
    placements = [place for place in PLACEMENTS if any(key[0] == place for key in keys)]
    lines = [
        (name, [shown.get((place, LATENCY, NBYTES, name), "") for place in placements])
        for name in dict.fromkeys(key[3] for key in keys)
    ]
    title = "8 B between two processes, half a round trip, from Python, by where the ends run: p50, below it p99"
    return Grid(title, "", placements, lines)


def jobs(shown: dict[Cell, str], rows: Iterable[Row]) -> list[Grid]:
    """One for each placement."""
    p50 = {
        (row.placement, row.test, row.nbytes, row.impl): row.value
        for row in rows
        if row.metric == "p50"
    }
    found = []
    for place in PLACEMENTS:
        here = [key for key in shown if key[0] == place and key[1] != LATENCY]
        impls = list(dict.fromkeys(key[3] for key in here))
        lines = []
        for _, test, nbytes in dict.fromkeys(key[:3] for key in here):
            each = [(place, test, nbytes, impl) for impl in impls]
            ratios = [
                f"{p50[each[0]] / p50[key]:.2f}" if each[0] in p50 and key in p50 else ""
                for key in each[1:]
            ]
            call, _, ranks = test.rpartition("_")
            size = f" {human_bytes(nbytes)}" if nbytes else ""
            said = f"{call}{size}, {ranks} ranks"
            lines.append((said, [*(shown.get(key, "") for key in each), *ratios]))
        columns = [*impls, *(f"/ {impl}" for impl in impls[1:])]
        shared = ", or several on one" if place == APART else ""
        title = f"calls of all ranks, from Python: p50, below it p99; ends: {place}{shared}"
        found.append(Grid(title, "", columns, lines))
    return found

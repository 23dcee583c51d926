"""Draws the tables over the message size, for screen and print.

Each contender has its own colour, marker and dashes, the same in every panel, with one legend below.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerohop.bench.rows import DRIVERS, OURS
from zerohop.bench.tables import Part, Table, columns_of
from zerohop.host import decimal_bytes, human_bytes, human_seconds

FORMATS = (".png", ".svg", ".pdf")
COLUMNS = 2  # of panels, if there is a single part
PANEL_INCHES = (3.7, 2.5)
DOTS_PER_INCH = 200  # of a .png: sharp in print
TITLE_WIDTH = 40  # characters
TICKS = 6  # approximate number of sizes on an axis
# Okabe and Ito's colours: distinct for the colour-blind and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
MARKERS = "osD^vPX<>*hp"

Lines = dict[str, dict[int, float]]  # contender: nbytes: value
Panel = tuple[Table, Lines]


def check_plot(path: Path) -> None:
    """Called before the measurements: raises ValueError with a remedy if `path` cannot be drawn to."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{str(path)!r} does not end in {', '.join(FORMATS)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ValueError("drawing needs matplotlib: pip install 'zerohop[plot]'") from None


def panels(part: Part) -> list[Panel]:
    """The panel of each table with more than one size."""
    found = []
    for table in part.tables:
        cells = table.cells(part.rows) if table.over_size else {}
        if len(cells) > 1:
            drawn: Lines = {}
            for name in columns_of(cells):
                said = f"{OURS} {name}" if name in DRIVERS.values() else name
                there = [line[name] for line in cells.values() if name in line]
                drawn[said] = {row.nbytes: row.value for row in there}
            found.append((table, drawn))
    return found


def draw(path: Path, title: str, parts: Sequence[Part]) -> bool:
    """Writes the plot: parts side by side, or a single part in COLUMNS. False if there is nothing to draw."""
    columns = [(part.label, found) for part in parts if (found := panels(part))]
    if not columns:
        return False
    if len(columns) == 1:
        flat = columns[0][1]
        columns = [("", flat[i::COLUMNS]) for i in range(min(COLUMNS, len(flat)))]
    height = max(len(column) for _, column in columns)
    size = PANEL_INCHES[0] * len(columns), PANEL_INCHES[1] * height + 0.9
    figures: Any = importlib.import_module("matplotlib.figure")
    figure = figures.Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=11)
    names = list(
        dict.fromkeys(name for _, column in columns for _, drawn in column for name in drawn)
    )
    shown: dict[str, Any] = {}
    grid = figure.subplots(height, len(columns), squeeze=False)
    for axes, (label, column) in zip(grid.T, columns, strict=True):
        for panel, (table, drawn) in zip(axes, column, strict=False):
            for name, values in drawn.items():
                over = list(values), list(values.values())
                (shown[name],) = panel.plot(*over, **_style(name, names))
            _label(panel, table, sorted({nbytes for line in drawn.values() for nbytes in line}))
        for panel in axes[len(column) :]:
            panel.set_axis_off()
        axes[0].set_title(f"{label}\n{axes[0].get_title()}".strip(), fontsize=8)
    where = {"loc": "outside lower center", "ncols": min(6, len(names))}
    figure.legend([shown[name] for name in names], names, fontsize=8, frameon=False, **where)
    figure.savefig(path, dpi=DOTS_PER_INCH)
    return True


def _style(name: str, names: Sequence[str]) -> dict[str, Any]:
    place = names.index(name)
    ours = name.startswith(OURS)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": "-" if ours else "--",
        "linewidth": 1.6 if ours else 1.0,
        "markersize": 3.5,
        "zorder": 3 if ours else 2,
    }


def _label(axes: Any, table: Table, sizes: Sequence[int]) -> None:
    """Seconds as "10 us", rates as "1 GB/s", at powers of ten, at least one of which is visible."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 10 * low:
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / 10**0.5, middle * 10**0.5)

    def named(value: float, _: int) -> str:
        rate = table.metric == "bandwidth"
        return f"{decimal_bytes(value)}/s" if rate else human_seconds(value)

    axes.yaxis.set_major_formatter(ticker.FuncFormatter(named))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    every = -(-len(sizes) // TICKS)
    axes.set_xticks(sizes[::every], [human_bytes(nbytes) for nbytes in sizes[::every]])
    axes.xaxis.minorticks_off()
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.set_title(textwrap.fill(table.title, TITLE_WIDTH), fontsize=8)
    axes.tick_params(which="both", labelsize=7)

"""The same figures drawn, for a screen and for print: lines over the size of the message, and dots for what has one size.

Who is who is told by colour, marker and dashes together, the same in every panel, and once below them all.
"""

from __future__ import annotations

import importlib
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zerohop.bench.report import PEERS, Part, Sheet, View, lines, sheet_columns
from zerohop.bench.rows import DRIVERS, Figures
from zerohop.host import decimal_bytes, human_bytes, human_seconds

FORMATS = (".png", ".svg", ".pdf")
COLUMNS = 2  # of panels, where all figures are told together
PANEL_INCHES = (3.7, 2.5)
DOTS_PER_INCH = 200  # of a .png: sharp on paper at the size it has there
TITLE_WIDTH = 40  # characters, above a panel
TICKS = 6  # sizes named on an axis, about
# Okabe and Ito's colours, which the colour-blind tell apart, and which differ in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
MARKERS = "osD^vPX<>*hp"
OURS = {f"zerohop {name}": name for name in DRIVERS.values()}


Drawn = dict[str, dict[int, float]]  # by who was measured, over nbytes


def check_plot(path: Path) -> None:
    """Before anything is measured: ValueError if `path` could not be drawn to, with what helps."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{str(path)!r} does not end in {', '.join(FORMATS)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ValueError("drawing needs matplotlib: pip install 'zerohop[plot]'") from None


def panels(figures: Figures, views: Sequence[View]) -> list[tuple[View, Drawn]]:
    """Of each view with more than one size, what it shows."""
    found = []
    for view in views:
        drawn = {
            name if name in PEERS else f"zerohop {name}": values
            for name, values in lines(figures, view).items()
        }
        if max((len(values) for values in drawn.values()), default=0) > 1:
            found.append((view, drawn))
    return found


def dots(figures: Figures, sheets: Sequence[Sheet]) -> list[tuple[Sheet, dict[str, list[float]]]]:
    """Of each sheet with a figure what each has on its lines; 0 where there is none."""
    found = []
    for sheet in sheets:
        columns = sheet_columns(figures, sheet)
        named = {
            name if name in (*PEERS, "zerohop") else f"zerohop {name}": [v or 0.0 for v in values]
            for name, values in columns.items()
            if any(values)
        }
        if named:
            found.append((sheet, named))
    return found


def draw(path: Path, title: str, parts: Sequence[Part]) -> bool:
    """Writes the plot: parts side by side, or a single one in COLUMNS. False if there is nothing to draw."""
    columns: list[list[tuple[View | Sheet, Any]]] = [
        [*panels(part.figures, part.views), *dots(part.figures, part.sheets)] for part in parts
    ]
    labels = [part.label for part, column in zip(parts, columns, strict=True) if column]
    columns = [column for column in columns if column]
    if not columns:
        return False
    if len(columns) == 1:
        (flat,) = columns
        columns = [flat[i::COLUMNS] for i in range(min(COLUMNS, len(flat)))]
    figure_module: Any = importlib.import_module("matplotlib.figure")
    height = max(map(len, columns))
    width, tall = PANEL_INCHES
    size = (width * len(columns), tall * height + 0.9)
    figure = figure_module.Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=11)
    names = _names(columns)
    shown: dict[str, Any] = {}
    places = figure.subfigures(1, len(columns), squeeze=False)[0]
    for i, (place, column) in enumerate(zip(places, columns, strict=True)):
        if len(labels) > 1:
            place.suptitle(labels[i], fontsize=9, fontweight="bold")
        axes = place.subplots(height, 1, squeeze=False)[:, 0]
        for panel, (what, drawn) in zip(axes, column, strict=False):
            if isinstance(what, View):
                shown |= _lines(panel, what, drawn, names)
            else:
                shown = _dots(panel, what, drawn, names) | shown
        for panel in axes[len(column) :]:
            panel.set_axis_off()
    figure.legend(
        [shown[name] for name in names if name in shown],
        [name for name in names if name in shown],
        loc="outside lower center",
        ncols=min(6, max(1, len(shown))),
        fontsize=8,
        frameon=False,
    )
    figure.savefig(path, dpi=DOTS_PER_INCH)
    return True


def _names(columns: Sequence[Sequence[tuple[Any, Mapping[str, Any]]]]) -> list[str]:
    """Of all who are drawn: ours first, and then always in the same order."""
    there = {name for column in columns for _, drawn in column for name in drawn}
    return [name for name in ("zerohop", *OURS, *PEERS) if name in there]


def _style(name: str, names: Sequence[str]) -> dict[str, Any]:
    place = names.index(name)
    ours = name.startswith("zerohop")
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": "-" if ours else "--",
        "linewidth": 1.6 if ours else 1.0,
        "markersize": 3.5,
        "zorder": 3 if ours else 2,
    }


def _lines(axes: Any, view: View, drawn: Drawn, names: Sequence[str]) -> dict[str, Any]:
    """The line of each name."""
    shown = {}
    for name, values in drawn.items():
        over = list(values), list(values.values())
        (shown[name],) = axes.plot(*over, label=name, **_style(name, names))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(*_a_decade_at_least(axes.get_ylim()))
    _name_values(axes.yaxis, view.metric)
    sizes = sorted({nbytes for values in drawn.values() for nbytes in values})
    every = -(-len(sizes) // TICKS)
    axes.set_xticks(sizes[::every], [human_bytes(nbytes) for nbytes in sizes[::every]])
    axes.xaxis.minorticks_off()
    axes.grid(visible=True, which="major", alpha=0.3)
    _label(axes, view.title)
    return shown


def _dots(
    axes: Any, sheet: Sheet, drawn: Mapping[str, Sequence[float]], names: Sequence[str]
) -> dict[str, Any]:
    """The dots of each name, a little below each other on every line of the sheet."""
    shown = {}
    apart = 0.6 / len(drawn)
    for i, (name, values) in enumerate(drawn.items()):
        offset = (i - (len(drawn) - 1) / 2) * apart
        dots = [(value, line + offset) for line, value in enumerate(values) if value]
        style = {**_style(name, names), "linestyle": "none", "markersize": 4.5}
        (shown[name],) = axes.plot(*zip(*dots, strict=True), label=name, **style)
    axes.set_yticks(range(len(sheet.lines)), [said for said, *_ in sheet.lines])
    axes.set_ylim(len(sheet.lines) - 0.5, -0.5)  # the first line on top
    axes.set_xscale("log")
    axes.set_xlim(*_a_decade_at_least(axes.get_xlim()))
    _name_values(axes.xaxis, sheet.metric)
    axes.grid(visible=True, which="major", axis="x", alpha=0.3)
    axes.hlines(
        [line - 0.5 for line in range(1, len(sheet.lines))], *axes.get_xlim(), "0.9", lw=0.6
    )
    _label(axes, sheet.title)
    return shown


def _a_decade_at_least(limits: tuple[float, float]) -> tuple[float, float]:
    """So that a power of ten is named, and noise does not look large."""
    low, high = limits
    if high >= 10 * low:
        return limits
    middle = math.sqrt(low * high)
    return middle / math.sqrt(10), middle * math.sqrt(10)


def _name_values(axis: Any, metric: str) -> None:
    """Seconds as "10 us", rates as "1 GB/s": at powers of ten."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    said: dict[str, Callable[[float], str]] = {
        "bandwidth": lambda rate: f"{decimal_bytes(rate)}/s",
        "rate": lambda rate: f"{rate:g}/s",
    }
    show = said.get(metric, human_seconds)
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _label(axes: Any, title: str) -> None:
    axes.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=8)
    axes.tick_params(which="both", labelsize=7)

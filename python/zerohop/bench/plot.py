"""The same figures drawn: time and bandwidth over the size of the message, both axes logarithmic."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zerohop.bench.report import PEERS, View, lines
from zerohop.bench.rows import Figures
from zerohop.host import human_bytes

FORMATS = (".png", ".svg", ".pdf")
COLUMNS = 2
PANEL_INCHES = (6.0, 3.6)
TICKS = 6  # sizes named on an axis, about


def check_plot(path: Path) -> None:
    """Before anything is measured: ValueError if `path` could not be drawn to, with what helps."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{str(path)!r} does not end in {', '.join(FORMATS)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ValueError("drawing needs matplotlib: pip install 'zerohop[plot]'") from None


def panels(
    series: Mapping[str, Figures], views: Sequence[View]
) -> list[tuple[View, dict[str, dict[int, float]]]]:
    """Of each view with more than one size, what it shows: {name: {nbytes: value}}.

    series: figures by what tells them apart, "" if there is only one of them.
    """
    found = []
    for view in views:
        drawn: dict[str, dict[int, float]] = {}
        for label, figures in series.items():
            for name, values in lines(figures, view).items():
                who = name if name in PEERS else f"zerohop {name}"
                drawn[f"{who}, {label}" if label else who] = values
        if max((len(values) for values in drawn.values()), default=0) > 1:
            found.append((view, drawn))
    return found


def draw(
    path: Path, title: str, series: Mapping[str, Figures], views: Sequence[View]
) -> list[View]:
    """Writes the plot, one panel for each view with more than one size, and returns those views."""
    shown = panels(series, views)
    if not shown:
        return []
    figure_module: Any = importlib.import_module("matplotlib.figure")
    rows = -(-len(shown) // COLUMNS)
    width, height = PANEL_INCHES
    figure = figure_module.Figure(figsize=(width * COLUMNS, height * rows), layout="constrained")
    figure.suptitle(title)
    axes = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for place, (view, drawn) in zip(axes, shown, strict=False):
        _panel(place, view, drawn)
    for place in axes[len(shown) :]:
        place.set_axis_off()
    figure.savefig(path)
    return [view for view, _ in shown]


def _panel(axes: Any, view: View, drawn: Mapping[str, Mapping[int, float]]) -> None:
    scale = 1e-9 if view.is_rate else 1e6
    for name, values in drawn.items():
        style = "-" if name.startswith("zerohop") else "--"
        scaled = [value * scale for value in values.values()]
        axes.plot(list(values), scaled, style, marker="o", markersize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1, 0.4)))
    axes.set_title(view.title, fontsize="medium")
    axes.set_ylabel("GB/s" if view.is_rate else "us")
    sizes = sorted({nbytes for values in drawn.values() for nbytes in values})
    named = sizes[:: max(1, len(sizes) // TICKS)]
    axes.set_xticks(named, [human_bytes(nbytes) for nbytes in named])
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")

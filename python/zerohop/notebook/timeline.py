"""Draws when Transfers were requested, moved and ended, below one another on one scale."""

from __future__ import annotations

import time
from dataclasses import dataclass

from zerohop import _core
from zerohop.errors import Error
from zerohop.host import decimal_bytes, human_bytes, human_seconds
from zerohop.notebook.elements import BLUE, GREY, RED, Markup, element, svg

# Pixels.
LEFT, SCALE, RIGHT, ROW, BAR, AXIS = 150, 360, 170, 22, 12, 26
MOST = 200  # rows


@dataclass(frozen=True)
class Bar:
    """One transfer. Seconds of one clock; begun: None if this process did not move it, or not yet."""

    label: str
    nbytes: int
    asked: float
    begun: float | None
    until: float  # now, for a transfer in flight
    state: str  # "done", "failed" or "under way"

    @property
    def text(self) -> str:
        """Its duration and speed."""
        took = human_seconds(self.until - self.asked)
        if self.state != "done":
            return f"{self.state}, {took}"
        if self.nbytes == 0 or self.until <= self.asked:
            return took
        return f"{took}, {decimal_bytes(self.nbytes / (self.until - self.asked))}/s"


class Timeline:
    """The result of `timeline()`: in a notebook a drawing, elsewhere lines of text."""

    def __init__(self, bars: list[Bar], without: int) -> None:
        self.bars, self.without = bars, without

    def __repr__(self) -> str:
        lines = [f"<Timeline of {len(self.bars)} transfers>"]
        first = min((bar.asked for bar in self.bars), default=0.0)
        for bar in self.bars:
            lines.append(f"{bar.label}: after {human_seconds(bar.asked - first)}, {bar.text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [draw(self.bars)] if self.bars else []
        if self.without:
            note = f"{self.without} without times: zh.keep_times() keeps those of later transfers"
            parts.append(element("div", note))
        return element("div", *parts)


def timeline(*transfers: _core.Transfer) -> Timeline:
    """Transfers that began while `zh.keep_times()` was on, below one another on one scale of time.

    The grey part of a bar is the time in the queue. The coloured part starts when a device, a CPU or a GPU got the first
    part to move, and ends when the Transfer was done. Transfers in flight are drawn until the time of the call.
    """
    now = time.monotonic()
    known = [bar for transfer in transfers if (bar := bar_of(transfer, now)) is not None]
    return Timeline(known, len(transfers) - len(known))


def bar_of(transfer: _core.Transfer, now: float) -> Bar | None:
    """None: its times were not kept. now: of time.monotonic()."""
    times = transfer.times
    if times is None:
        return None
    state = "under way"
    if "ended" in times:
        state = "done" if failure_of(transfer) is None else "failed"
    until = max(times.get("ended", now), times["asked"])
    label = f"{human_bytes(transfer.nbytes)} by {transfer.route.kind}"
    return Bar(label, transfer.nbytes, times["asked"], times.get("begun"), until, state)


def failure_of(transfer: _core.Transfer) -> Exception | None:
    """The error of a Transfer that is done; None: it succeeded."""
    try:
        transfer.wait(0)
    except (Error, ValueError) as error:  # ValueError: a message that does not fit
        return error
    return None


def draw(bars: list[Bar]) -> Markup:
    """As an <svg> element."""
    shown = bars[:MOST]
    first = min(bar.asked for bar in shown)
    span = max(max(bar.until for bar in shown) - first, 1e-9)
    width, height = LEFT + SCALE + RIGHT, ROW * len(shown) + AXIS + ROW * (len(bars) > MOST)
    parts: list[Markup] = []
    for step in range(5):
        parts += _tick(LEFT + SCALE * step / 4, ROW * len(shown), span * step / 4)
    for row, bar in enumerate(shown):
        parts += _row(bar, ROW * row, first, span)
    if len(bars) > MOST:
        parts.append(_text(LEFT, height - 6, f"and {len(bars) - MOST} more"))
    label = f"timeline of {len(bars)} transfers over {human_seconds(span)}"
    return svg(width, height, label, *parts, font_size=11)


def _tick(x: float, below: int, seconds: float) -> list[Markup]:
    line = element(
        "line", x1=f"{x:.1f}", y1=0, x2=f"{x:.1f}", y2=below + 4, stroke=GREY, stroke_opacity=0.35
    )
    return [line, _text(x, below + 17, human_seconds(seconds) if seconds else "0", "middle")]


def _row(bar: Bar, top: int, first: float, span: float) -> list[Markup]:
    def at(moment: float) -> float:
        return LEFT + SCALE * min(1.0, max(0.0, (moment - first) / span))

    middle = top + ROW / 2
    color = {"done": BLUE, "failed": RED}.get(bar.state, GREY)
    begun = bar.asked if bar.begun is None else bar.begun
    parts = [_text(LEFT - 8, middle + 4, bar.label, "end")]
    if begun > bar.asked:
        parts.append(_bar(at(bar.asked), at(begun), middle, GREY, 0.5))
    parts.append(_bar(at(begun), at(bar.until), middle, color, 0.3 if color == GREY else 1))
    parts.append(_text(LEFT + SCALE + 8, middle + 4, bar.text))
    return parts


def _bar(x1: float, x2: float, middle: float, color: str, opacity: float) -> Markup:
    return element(
        "rect",
        x=f"{x1:.1f}",
        y=middle - BAR / 2,
        width=f"{max(1.0, x2 - x1):.1f}",
        height=BAR,
        rx=2,
        fill=color,
        fill_opacity=opacity,
        stroke=color,
        stroke_dasharray="3 2" if opacity < 0.5 else None,
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> Markup:
    return element("text", text, x=f"{x:.1f}", y=y, text_anchor=anchor, fill="currentColor")

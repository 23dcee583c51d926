"""The HTML of the objects of the core, by their type."""

from __future__ import annotations

import time
from functools import singledispatch
from typing import Any

from zerohop import _core
from zerohop.host import human_bytes
from zerohop.notebook.elements import (
    BLUE,
    GREEN,
    GREY,
    RED,
    Child,
    Markup,
    card,
    element,
    muted,
    table,
)
from zerohop.notebook.timeline import bar_of, draw, failure_of

_MOST = 50  # rows of a table
_OPERATIONS = ("writes", "reads", "atomics", "sends", "recvs")


@singledispatch
def html(thing: object) -> str:
    """Raises TypeError for types without a display."""
    raise TypeError(f"zerohop.notebook does not draw {type(thing).__name__}")


@html.register
def _(route: _core.Route) -> str:
    settings = route.settings
    parts: list[Child] = [element("div", "because " + route.reason)]
    if settings:
        rails = settings.pop("rails", None)
        shown = table(["setting", "value"], [(k, str(v)) for k, v in settings.items()], words=2)
        parts.append(_folded(f"{len(settings)} settings in effect", shown))
        if isinstance(rails, list):
            lines = [element("div", str(rail)) for rail in rails]
            parts.append(_folded(f"those of {len(rails)} rails", *lines))
    return card(f"{route.kind} over {route.device}", "Route", *parts, color=_color_of(route))


@html.register
def _(transfer: _core.Transfer) -> str:
    route = transfer.route
    parts: list[Child] = [element("div", f"{route.kind} over {route.device}")]
    state, color = ("done", GREEN) if transfer.done else ("under way", BLUE)
    error = failure_of(transfer) if transfer.done else None
    if error is not None:
        state, color = "failed", RED
        parts.append(element("div", f"{type(error).__name__}: {error}"))
    bar = bar_of(transfer, time.monotonic())
    if bar is not None:
        parts.append(draw([bar]))
    else:
        parts.append(muted("zh.keep_times() keeps the times of later transfers"))
    title = f"{human_bytes(transfer.nbytes)}, {state}"
    return card(title, "Transfer", *parts, color=color)


@html.register
def _(memory: _core.Memory) -> str:
    words = ["writable by peers" if memory.writable else "read-only to peers"]
    words.append(f"registered: {memory.registration}")
    if memory.closed:
        words = ["closed: peers can no longer reach it"]
    return _array_card(memory, "Memory", words, RED if memory.closed else GREEN)


@html.register
def _(memory: _core.RemoteMemory) -> str:
    words = [memory.access, f"of endpoint {memory.endpoint_id[:8]}"]
    return _array_card(memory, "RemoteMemory", words, BLUE)


def _array_card(
    memory: _core.Memory | _core.RemoteMemory, kind: str, words: list[str], color: str
) -> str:
    what = f"{memory.shape} {memory.dtype} on {memory.device}"
    below = ", ".join([human_bytes(memory.nbytes), *words])
    return card(what, kind, element("div", below), color=color)


@html.register
def _(peer: _core.Peer) -> str:
    stats = peer.stats()
    rows = stats["routes"]
    most = max((row["bytes_out"] + row["bytes_in"] for row in rows), default=0)
    heads = ["route", "", *_OPERATIONS, "notified", "out", "in", "under way", "failed"]
    routes = table(heads, [_route_cells(row, most) for row in rows], words=2)
    state = "connected" if peer.alive else "lost"
    where = f"process {peer.pid} on {peer.host}, {state}"
    parts: list[Child] = [element("div", where), routes, *_troubles(stats)]
    return card(peer.name, "Peer", *parts, color=GREEN if peer.alive else RED)


def _route_cells(row: dict[str, Any], most: int) -> list[Child]:
    counts = [_count(row[key]) for key in (*_OPERATIONS, "notifications_out")]
    traffic = [_amount(row[key]) for key in ("bytes_out", "bytes_in")]
    ends = [_count(row["under_way"]), _count(row["failures"])]
    name = f"{row['route']} over {row['device']}"
    return [name, _share(row["bytes_out"], row["bytes_in"], most), *counts, *traffic, *ends]


def _share(out: int, back: int, most: int) -> Markup:
    """A bar relative to the busiest row: bytes out, and bytes in behind them."""
    width = 80
    lengths = [width * nbytes / most if most else 0 for nbytes in (out, back)]
    bars = [
        element("rect", x=f"{x:.1f}", y=2, width=f"{length:.1f}", height=8, fill=color)
        for x, length, color in ((0, lengths[0], BLUE), (lengths[0], lengths[1], GREEN))
    ]
    label = f"{out} bytes out, {back} in"
    return element("svg", *bars, width=width, height=12, role="img", aria_label=label)


def _troubles(stats: dict[str, Any]) -> list[Child]:
    """Rails that do not work."""
    rails = [rail for rail in stats["rails"] if rail["trouble"]]
    return [element("div", f"{rail['device']}: {rail['trouble']}") for rail in rails]


@html.register
def _(endpoint: _core.Endpoint) -> str:
    peers = endpoint.peers
    about = f"on {endpoint.device}, waits are bounded by {endpoint.timeout:g} s"
    if endpoint.closed:
        about = f"on {endpoint.device}, closed"
    parts: list[Child] = [element("div", about)]
    if peers:
        rows = [peer_rows(peer) for peer in peers[:_MOST]]
        parts.append(table(["peer", "host", "process", "out", "in"], rows, words=2))
    elif not endpoint.closed:
        parts.append(muted("no peer is connected"))
    if len(peers) > _MOST:
        parts.append(muted(f"and {len(peers) - _MOST} more"))
    events = endpoint.device_events[-3:]
    parts += [element("div", f"{event['device']}: {event['message']}") for event in events]
    return card(endpoint.name, "Endpoint", *parts, color=GREY if endpoint.closed else GREEN)


def peer_rows(peer: _core.Peer) -> list[Child]:
    """Cells of a Peer in a table: name, host, process, bytes out and in."""
    stats = peer.stats()
    traffic = [_amount(stats[key]) for key in ("bytes_out", "bytes_in")]
    return [peer.name, peer.host, peer.pid, *traffic]


def _count(number: int) -> Markup:
    return element("span", number) if number else muted("·")


def _amount(nbytes: int) -> Markup:
    return element("span", human_bytes(nbytes)) if nbytes else muted("·")


def _folded(summary: str, *children: Child) -> Markup:
    return element("details", element("summary", summary), *children)


def _color_of(route: _core.Route) -> str:
    return {"p2p": GREEN, "gpudirect": GREEN, "host": BLUE}.get(route.kind, GREY)

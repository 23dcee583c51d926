"""A World as its ranks, seen from one of them."""

from __future__ import annotations

import os
import socket
from itertools import groupby
from typing import TYPE_CHECKING

from zerohop.notebook.elements import GREEN, GREY, RED, Child, card, element, muted, table
from zerohop.notebook.objects import peer_rows

if TYPE_CHECKING:
    from zerohop.world import World

__all__ = ["world_html"]

_MOST = 64  # ranks in rows of their own


def world_html(world: World) -> str:
    """Connects to nobody: ranks that were never needed are told as such."""
    states = world.state()
    connected = set(world.connected())
    rows = _rows(world, states, connected)
    lost = [rank for rank, state in enumerate(states) if state != "healthy"]
    told = f"rank {world.rank} of {world.size} on {world.endpoint.device}"
    if lost:
        told += f", {len(lost)} lost"
    parts: list[Child] = [
        element("div", told + (", closed" if world.endpoint.closed else "")),
        table(["rank", "state", "peer", "host", "process", "out", "in"], rows[:_MOST], words=4),
    ]
    if len(rows) > _MOST:
        parts.append(muted(f"and {len(rows) - _MOST} more"))
    color = GREY if world.endpoint.closed else RED if lost else GREEN
    return card(world.name, "World", *parts, color=color)


def _rows(world: World, states: list[str], connected: set[int]) -> list[list[Child]]:
    """One for each rank, but neighbours of which nothing is known share theirs."""

    def key(rank: int) -> tuple[str, int]:
        single = rank == world.rank or rank in connected
        return states[rank], rank if single else -1

    rows: list[list[Child]] = []
    for (state, _), group in groupby(range(world.size), key):
        ranks = list(group)
        name = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
        if ranks == [world.rank]:
            where: list[Child] = ["this one", socket.gethostname(), os.getpid(), "", ""]
        elif ranks[0] in connected:
            where = peer_rows(world.peer(ranks[0]))
        else:
            where = [muted("not connected"), "", "", "", ""]
        rows.append([name, _state(state), *where])
    return rows


def _state(state: str) -> Child:
    color = GREEN if state == "healthy" else RED
    return element("span", state, style=f"color:{color}")

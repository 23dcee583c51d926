"""The display of a World: its ranks, seen from one of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from zerohop.notebook.elements import GREEN, GREY, RED, Child, card, element, muted, table
from zerohop.notebook.objects import peer_rows

if TYPE_CHECKING:
    from zerohop._core import Endpoint, Peer

_MOST = 64  # most ranks with a row of their own


def world_html(
    name: str, own: int, states: Sequence[str], endpoint: Endpoint, peers: Mapping[int, Peer]
) -> str:
    """Connects to nobody: ranks that were never needed, and so are not in `peers`, are shown as such."""
    rows = _rows(own, states, peers)
    lost = [rank for rank, state in enumerate(states) if state != "healthy"]
    text = f"rank {own} of {len(states)} on {endpoint.device}"
    if lost:
        text += f", {len(lost)} lost"
    parts: list[Child] = [
        element("div", text + (", closed" if endpoint.closed else "")),
        table(["rank", "state", "peer", "host", "process", "out", "in"], rows[:_MOST], words=4),
    ]
    if len(rows) > _MOST:
        parts.append(muted(f"and {len(rows) - _MOST} more"))
    color = GREY if endpoint.closed else RED if lost else GREEN
    return card(name, "World", *parts, color=color)


def _rows(own: int, states: Sequence[str], peers: Mapping[int, Peer]) -> list[list[Child]]:
    """One row for each rank, but consecutive unknown ranks share a row."""

    def key(rank: int) -> tuple[str, int]:
        single = rank == own or rank in peers
        return states[rank], rank if single else -1

    rows: list[list[Child]] = []
    for (state, _), group in groupby(range(len(states)), key):
        ranks = list(group)
        name = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
        if ranks == [own]:
            where: list[Child] = ["this one", socket.gethostname(), os.getpid(), "", ""]
        elif ranks[0] in peers:
            where = peer_rows(peers[ranks[0]])
        else:
            where = [muted("not connected"), "", "", "", ""]
        rows.append([name, _state(state), *where])
    return rows


def _state(state: str) -> Child:
    color = GREEN if state == "healthy" else RED
    return element("span", state, style=f"color:{color}")

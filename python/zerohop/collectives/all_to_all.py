"""All-to-all and send_recv: every rank exchanges with some, each in its own order, so that no receiver is everybody's first."""

from __future__ import annotations

from collections.abc import Sequence

from zerohop.collectives.blocks import Block
from zerohop.collectives.exchange import Move
from zerohop.collectives.turn import Turn

__all__ = ["all_to_all", "send_recv"]


def all_to_all(turn: Turn, out: Sequence[Block], parts: Sequence[Block]) -> None:
    """Both by rank."""
    rank, size = turn.rank, turn.size
    turn.copy(out[rank], parts[rank])
    after = [(rank + step) % size for step in range(1, size)]
    before = [(rank - step) % size for step in range(1, size)]
    turn.exchange(
        [turn.move(each, parts[each]) for each in after],
        [turn.move(each, out[each]) for each in before],
    )


def send_recv(turn: Turn, sends: Sequence[Move], receives: Sequence[Move]) -> None:
    """At most one of each; to this rank itself both."""
    if sends and sends[0].rank == turn.rank:
        turn.copy(receives[0].block, sends[0].block)
    else:
        turn.exchange(sends, receives)

"""Scatter and gather: between the root and each other rank; its own block does not leave the root."""

from __future__ import annotations

from collections.abc import Sequence

from zerohop.collectives.blocks import Block
from zerohop.collectives.turn import Turn

__all__ = ["gather", "scatter"]


def scatter(turn: Turn, out: Block, parts: Sequence[Block]) -> None:
    """parts: of the root, by rank; elsewhere none."""
    if turn.rank != turn.root:
        turn.exchange([], [turn.move(turn.root, out)])
        return
    turn.copy(out, parts[turn.rank])
    turn.exchange([turn.move(rank, parts[rank]) for rank in _others(turn)], [])


def gather(turn: Turn, parts: Sequence[Block], block: Block) -> None:
    if turn.rank != turn.root:
        turn.exchange([turn.move(turn.root, block)], [])
        return
    turn.copy(parts[turn.rank], block)
    turn.exchange([], [turn.move(rank, parts[rank]) for rank in _others(turn)])


def _others(turn: Turn) -> list[int]:
    return [(turn.rank + step) % turn.size for step in range(1, turn.size)]

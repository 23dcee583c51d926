"""Broadcast: along a binomial tree; a large array in pieces, along a chain where that takes fewer steps.

In a tree of `size` ranks a piece is there after log2(size) steps, and the root sends it as often. In a chain each rank
sends it once, and passes it on while the next one comes: pieces + size - 2 steps in all. Among a few ranks the root
sends what is small to all of them at once: ranks that share cores take turns once in each step.
"""

from __future__ import annotations

from zerohop.collectives.blocks import Block
from zerohop.collectives.lines import EAGER
from zerohop.collectives.turn import Turn

__all__ = ["PIECE", "broadcast"]

# Bytes. Each piece costs messages: 64 MiB to 3 ranks, by p2p on a busy host of two cores, took 67 ms in pieces of 1 MiB, 36 ms
# of 4 MiB and 19 ms of 16 MiB.
PIECE = 16 << 20

_FEW = 8  # ranks


def broadcast(turn: Turn, block: Block) -> None:
    passed_on = block.nbytes > EAGER and turn.size > 2
    pieces = block.pieces(PIECE) if passed_on else [block]
    position = (turn.rank - turn.root) % turn.size
    if turn.size <= _FEW and block.nbytes <= EAGER:
        parent, children = (0 if position else None), list(range(1, 0 if position else turn.size))
    else:
        parent, children = _neighbours(position, turn.size, len(pieces))
    source = [] if parent is None else [(parent + turn.root) % turn.size]
    targets = [(child + turn.root) % turn.size for child in children]
    for number in range(len(pieces) + 1):  # one comes while the one before it goes on
        receives = [
            turn.move(rank, pieces[number], whole=block.nbytes, part=number)
            for rank in source
            if number < len(pieces)
        ]
        sends = [
            turn.move(rank, pieces[number - 1], whole=block.nbytes, part=number - 1)
            for rank in targets
            if number > 0
        ]
        turn.exchange(sends, receives)


def _neighbours(position: int, size: int, pieces: int) -> tuple[int | None, list[int]]:
    """From whom and to whom a rank has it, counted from the root."""
    if pieces + size - 2 < pieces * (size - 1).bit_length():
        following = [position + 1] if position + 1 < size else []
        return (position - 1 if position else None), following
    lowest = position & -position if position else 1 << (size - 1).bit_length()
    steps = [1 << step for step in reversed(range(lowest.bit_length() - 1))]
    return (position - lowest if position else None), [
        position + step for step in steps if position + step < size
    ]

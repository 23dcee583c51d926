"""All-gather: among a few ranks each sends its block to all others at once; else small blocks go by dissemination in log2(size)
steps, others around a ring.

Ranks that share cores take turns once in each step, which takes them longer than to send some messages more.
Dissemination (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications, 1997): in step k a rank
hands all it has, 2**k blocks, to the one 2**k before it. Around the ring every rank sends and receives each block once.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerohop.collectives.blocks import Block
from zerohop.collectives.lines import EAGER
from zerohop.collectives.turn import Turn

__all__ = ["all_gather"]

_FEW = 8  # ranks


def all_gather(turn: Turn, out: Sequence[Block], block: Block) -> None:
    """out: by rank."""
    if turn.size <= _FEW and max(each.nbytes for each in out) <= EAGER:
        _send_to_all(turn, out, block)
    elif sum(each.nbytes for each in out) <= EAGER:
        _disseminate(turn, out, block)
    else:
        turn.copy(out[turn.rank], block)
        _go_round(turn, out)


def _send_to_all(turn: Turn, out: Sequence[Block], block: Block) -> None:
    rank, size = turn.rank, turn.size
    others = [(rank + step) % size for step in range(1, size)]
    turn.exchange(
        [turn.move(each, block, part=rank) for each in others],
        [turn.move(each, out[each], part=each) for each in others],
    )
    turn.copy(out[rank], block)


def _disseminate(turn: Turn, out: Sequence[Block], block: Block) -> None:
    """In memory of its own the blocks lie in the order in which they come: from this rank's on."""
    rank, size = turn.rank, turn.size
    order = [out[(rank + step) % size] for step in range(size)]
    begins = [0]
    for each in order:
        begins.append(begins[-1] + each.nbytes)
    for_gpus = not all(each.on_host for each in (block, *out))
    room = turn.copier.scratch(begins[-1], block, for_gpus=for_gpus)

    def blocks(first: int, last: int) -> Block:
        return Block(room.flat, begins[first], begins[last] - begins[first])

    turn.copy(blocks(0, 1), block)
    there = 1
    while there < size:
        end = min(2 * there, size)
        send = turn.move((rank - there) % size, blocks(0, end - there), part=there)
        receive = turn.move((rank + there) % size, blocks(there, end), part=there)
        turn.exchange([send], [receive])
        there = end
    for step, each in enumerate(order):
        turn.copy(each, blocks(step, step + 1))


def _go_round(turn: Turn, out: Sequence[Block]) -> None:
    rank, size = turn.rank, turn.size
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        mine, next_one = (rank - step) % size, (rank - step - 1) % size
        turn.exchange(
            [turn.move(right, out[mine], part=mine)],
            [turn.move(left, out[next_one], part=next_one)],
        )

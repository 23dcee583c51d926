"""The communication patterns: which rank sends what to which, and when.

Among a few ranks small blocks go to all of them at once: ranks that share cores take turns once per step, which takes
longer than some additional messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerohop.collectives.blocks import Block
from zerohop.collectives.exchange import Move
from zerohop.collectives.lines import EAGER
from zerohop.collectives.turn import FEW, Turn

# Bytes. Each piece costs messages: 64 MiB to 3 ranks, by p2p on a busy host with two cores, took 67 ms in pieces of 1 MiB, 36 ms
# in pieces of 4 MiB and 19 ms in pieces of 16 MiB.
PIECE = 16 << 20


def broadcast(turn: Turn, block: Block) -> None:
    """Along a binomial tree; a large array in pieces, along a chain if that takes fewer steps.

    In a tree of `size` ranks a piece arrives after log2(size) steps, and the root sends it that many times. In a chain each rank
    sends it once, and passes it on while the next one arrives: pieces + size - 2 steps in total.
    """
    passed_on = block.nbytes > EAGER and turn.size > 2
    pieces = block.pieces(PIECE) if passed_on else [block]
    position = (turn.rank - turn.root) % turn.size
    if turn.size <= FEW and block.nbytes <= EAGER:
        parent, children = (0 if position else None), list(range(1, 0 if position else turn.size))
    else:
        parent, children = _neighbours(position, turn.size, len(pieces))
    source = [] if parent is None else [(parent + turn.root) % turn.size]
    targets = [(child + turn.root) % turn.size for child in children]
    for number in range(len(pieces) + 1):  # receive one while the one before it is passed on
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
    """The source of a rank and its targets, counted from the root."""
    if pieces + size - 2 < pieces * (size - 1).bit_length():
        following = [position + 1] if position + 1 < size else []
        return (position - 1 if position else None), following
    lowest = position & -position if position else 1 << (size - 1).bit_length()
    steps = [1 << step for step in reversed(range(lowest.bit_length() - 1))]
    return (position - lowest if position else None), [
        position + step for step in steps if position + step < size
    ]


def scatter(turn: Turn, out: Block, parts: Sequence[Block]) -> None:
    """The root's own block is copied locally. parts: on the root by rank, elsewhere empty."""
    if turn.rank != turn.root:
        turn.exchange([], [turn.move(turn.root, out)])
        return
    turn.copy(out, parts[turn.rank])
    turn.exchange([turn.move(rank, parts[rank]) for rank in turn.others], [])


def gather(turn: Turn, parts: Sequence[Block], block: Block) -> None:
    if turn.rank != turn.root:
        turn.exchange([turn.move(turn.root, block)], [])
        return
    turn.copy(parts[turn.rank], block)
    turn.exchange([], [turn.move(rank, parts[rank]) for rank in turn.others])


def all_gather(turn: Turn, out: Sequence[Block], block: Block) -> None:
    """out: by rank. Small blocks by dissemination in log2(size) steps, others around a ring."""
    if turn.size <= FEW and max(each.nbytes for each in out) <= EAGER:
        _send_to_all(turn, out, block)
    elif sum(each.nbytes for each in out) <= EAGER:
        _disseminate(turn, out, block)
    else:
        turn.copy(out[turn.rank], block)
        _go_round(turn, out)


def _send_to_all(turn: Turn, out: Sequence[Block], block: Block) -> None:
    rank, others = turn.rank, turn.others
    turn.exchange(
        [turn.move(each, block, part=rank) for each in others],
        [turn.move(each, out[each], part=each) for each in others],
    )
    turn.copy(out[rank], block)


def _disseminate(turn: Turn, out: Sequence[Block], block: Block) -> None:
    """In step k each rank sends all its blocks, 2**k, to the rank 2**k before it.

    In scratch memory the blocks lie in the order of arrival, starting with this rank's. Source: Bruck, Ho, Kipnis,
    Upfal, Weathersby: Efficient algorithms for all-to-all communications, 1997.
    """
    rank, size = turn.rank, turn.size
    order = [out[(rank + step) % size] for step in range(size)]
    begins = [0]
    for each in order:
        begins.append(begins[-1] + each.nbytes)
    for_gpus = not all(each.on_host for each in (block, *out))
    scratch = turn.copier.scratch(begins[-1], block, for_gpus=for_gpus)

    def blocks(first: int, last: int) -> Block:
        return Block(scratch.flat, begins[first], begins[last] - begins[first])

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
    """Every rank sends and receives each block once."""
    rank, size = turn.rank, turn.size
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        mine, next_one = (rank - step) % size, (rank - step - 1) % size
        turn.exchange(
            [turn.move(right, out[mine], part=mine)],
            [turn.move(left, out[next_one], part=next_one)],
        )


def all_to_all(turn: Turn, out: Sequence[Block], parts: Sequence[Block]) -> None:
    """Both by rank. Each rank has its own order, so that no rank is the first target of all."""
    rank, size = turn.rank, turn.size
    turn.copy(out[rank], parts[rank])
    before = [(rank - step) % size for step in range(1, size)]
    turn.exchange(
        [turn.move(each, parts[each]) for each in turn.others],
        [turn.move(each, out[each]) for each in before],
    )


def send_recv(turn: Turn, sends: Sequence[Move], receives: Sequence[Move]) -> None:
    """At most one of each; a rank that sends to itself has both."""
    if sends and sends[0].rank == turn.rank:
        turn.copy(receives[0].block, sends[0].block)
    else:
        turn.exchange(sends, receives)

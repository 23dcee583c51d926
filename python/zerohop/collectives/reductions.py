"""Reductions of blocks: which rank reduces what, and in which order.

Wherever a block is reduced, the blocks of all ranks are there, and are reduced in the order of ranks. So the result depends on
nothing else: it is the same on all ranks, and in every run, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zerohop import _core
from zerohop.collectives.blocks import Block
from zerohop.collectives.lines import EAGER
from zerohop.collectives.turn import FEW, Turn

PIECE = 8 << 20  # bytes of each array on the way at a time; the memory for them is kept
OPS = {name: number for number, name in enumerate(_core.OPS) if number}  # the first is none


class Reduction(NamedTuple):
    """op: its place in _core.OPS. factor: of premul_sum."""

    op: int
    factor: float = 1.0

    def check(self, dtype: str) -> None:
        """Raises TypeError."""
        reason = _core.why_no_reduction(self.op, dtype)
        if reason:
            raise TypeError(reason)

    def into(self, turn: Turn, target: Block, sources: Sequence[Block]) -> None:
        """sources: in the order of ranks. GPU memory goes through the host."""
        if target.nbytes == 0:
            return
        out = target if target.on_host else _on_host(turn, target)
        inputs = [
            each if each.on_host else _copied(turn, _on_host(turn, each), each) for each in sources
        ]
        _core.reduce(
            self.op, target.flat.dtype, self.factor, out.bytes, [each.bytes for each in inputs]
        )
        turn.copy(target, out)


def reduction(op: str, factor: float | None) -> Reduction:
    """Raises ValueError, TypeError."""
    if not isinstance(op, str):
        raise TypeError(f"op must be the name of an operation, not {op!r}: one of {_NAMES}")
    if op not in OPS:
        raise ValueError(f"there is no reduction {op!r}: op is one of {_NAMES}")
    if (factor is None) != (op != "premul_sum"):
        raise ValueError('op="premul_sum" takes factor=, and no other operation does')
    return Reduction(OPS[op], 1.0 if factor is None else float(factor))


_NAMES = ", ".join(OPS)


def _on_host(turn: Turn, like: Block) -> Block:
    return turn.copier.scratch(like.nbytes, like, for_gpus=True)


def _copied(turn: Turn, target: Block, source: Block) -> Block:
    turn.copy(target, source)
    return target


def all_reduce(turn: Turn, out: Block, block: Block, fold: Reduction) -> None:
    """Small arrays go to all ranks, each of which reduces all. Of large ones each rank reduces a part."""
    if _is_one_shot(turn.size, block.nbytes):
        _direct(turn, dict.fromkeys(turn.others, block), turn.others, block, out, fold)
    else:
        _in_steps(turn, out, block, fold)


def _is_one_shot(size: int, nbytes: int) -> bool:
    """As in cpp/bindings/sliced_reduce.hpp."""
    return size <= FEW and nbytes <= EAGER and (size - 1) * nbytes <= 2 * EAGER


def reduce(turn: Turn, out: Block | None, block: Block, fold: Reduction) -> None:
    """out: on the root."""
    if turn.size > FEW or block.nbytes > EAGER:
        _in_steps(turn, out, block, fold)
    elif turn.rank == turn.root:
        _direct(turn, {}, turn.others, block, out, fold)
    else:
        _direct(turn, {turn.root: block}, [], block, None, fold)


def scan(turn: Turn, out: Block, block: Block, fold: Reduction) -> None:
    """Rank r gets the reduction of ranks 0 to r (MPI_Scan)."""
    if turn.size > FEW or block.nbytes > EAGER:
        _scan_by_slices(turn, out, block, fold)
    else:
        later = dict.fromkeys(range(turn.rank + 1, turn.size), block)
        _direct(turn, later, range(turn.rank), block, out, fold)


def reduce_scatter(turn: Turn, out: Block, parts: Sequence[Block], fold: Reduction) -> None:
    """parts: by rank; each rank reduces its own."""
    rank, others = turn.rank, turn.others
    if turn.size <= FEW and max(part.nbytes for part in parts) <= EAGER:
        sends = {other: parts[other] for other in others}
        _direct(turn, sends, others, parts[rank], out, fold)
        return
    step = max(EAGER, PIECE // (turn.size - 1) // 16 * 16) if others else PIECE
    cuts = [part.pieces(step) for part in parts]
    results = out.pieces(step)
    room = turn.copier.room(len(others) * max(each.nbytes for each in results), out)
    for number in range(max(map(len, cuts))):
        sends = {other: cuts[other][number] for other in others if number < len(cuts[other])}
        sources, slots = [], dict[int, Block]()
        if number < len(results):
            sources = others
            slots = _cut(room, sources, results[number].nbytes)
        turn.exchange(
            [
                turn.move(other, each, whole=parts[other].nbytes, part=number)
                for other, each in sends.items()
            ],
            [
                turn.move(other, each, whole=out.nbytes, part=number)
                for other, each in slots.items()
            ],
        )
        if number < len(results):
            slots[rank] = cuts[rank][number]
            fold.into(turn, results[number], [slots[each] for each in sorted(slots)])


def _direct(
    turn: Turn,
    sends: dict[int, Block],
    sources: Iterable[int],
    own: Block,
    out: Block | None,
    fold: Reduction,
) -> None:
    """In one step. As in cpp/bindings/collective_plan.cpp: other ranks may take that path for the same call."""
    sources = list(sources)
    slots = _cut(turn.copier.room(len(sources) * own.nbytes, own), sources, own.nbytes)
    turn.exchange(
        [turn.move(rank, block, part=turn.rank) for rank, block in sends.items()],
        [turn.move(rank, block, part=rank) for rank, block in slots.items()],
    )
    if out is not None:
        slots[turn.rank] = own
        fold.into(turn, out, [slots[rank] for rank in sorted(slots)])


def _in_steps(turn: Turn, out: Block | None, block: Block, fold: Reduction) -> None:
    """By cpp/bindings/sliced_reduce.hpp, in host memory: arrays of a GPU go there and back in pieces."""
    whole = block.nbytes
    on_host = block.on_host and (out is None or out.on_host)
    step = whole if on_host else _core.Exchange.chunk_for_reductions(turn.size)
    room = None if on_host else turn.copier.room(min(step, whole), block)
    sources = block.pieces(step)
    targets = [None] * len(sources) if out is None else out.pieces(step)
    for source, target in zip(sources, targets, strict=True):
        between = None if room is None else _begin(room, source.nbytes)
        here = source if between is None or source.on_host else _copied(turn, between, source)
        there = target if target is None or target.on_host else between
        turn.reduce(fold, here, there, whole=whole, before=source.begin - block.begin)
        if target is not None and there is not None:
            turn.copy(target, there)


def _scan_by_slices(turn: Turn, out: Block, block: Block, fold: Reduction) -> None:
    """Each rank reduces a slice of each piece for every rank, while it gets its slices of the next piece."""
    rank, size, whole = turn.rank, turn.size, block.nbytes
    others = turn.others
    pieces, outs = block.pieces(PIECE), out.pieces(PIECE)
    longest = _slices(pieces[0], size)[0].nbytes
    room = turn.copier.room((size + len(others)) * longest, block)
    ready: dict[int, Block] = {}  # results of the piece before, by target
    into: list[Block] = []  # slices of that piece in `out`
    for number in range(len(pieces) + 1):
        part = 2 * number
        sends = [
            turn.move(each, ready[each], whole=whole, part=part - 1)
            for each in ready
            if each != rank
        ]
        receives = [
            turn.move(each, into[each], whole=whole, part=part - 1)
            for each in (others if into else [])
        ]
        if number == len(pieces):
            turn.exchange(sends, receives)
            return
        slices = _slices(pieces[number], size)
        own = slices[rank]
        slots = _cut(_after(room, size * longest), others, own.nbytes)
        sends += [turn.move(each, slices[each], whole=whole, part=part) for each in others]
        receives += [turn.move(each, slots[each], whole=whole, part=part) for each in others]
        turn.exchange(sends, receives)
        into = _slices(outs[number], size)
        slots[rank] = own
        sources = [slots[each] for each in range(size)]
        ready = _cut(room, range(size), own.nbytes)
        for target, made in ready.items():
            fold.into(turn, made, sources[: target + 1])
        turn.copy(into[rank], ready[rank])


def _slices(block: Block, size: int) -> list[Block]:
    """A slice for each rank, the longer ones first."""
    elements, itemsize = block.nbytes // block.flat.itemsize, block.flat.itemsize
    slices, begin = [], block.begin
    for rank in range(size):
        nbytes = (elements // size + (rank < elements % size)) * itemsize
        slices.append(Block(block.flat, begin, nbytes))
        begin += nbytes
    return slices


def _cut(room: Block, ranks: Sequence[int], nbytes: int) -> dict[int, Block]:
    """So many bytes of the room for each rank."""
    return {
        rank: Block(room.flat, room.begin + number * nbytes, nbytes)
        for number, rank in enumerate(ranks)
    }


def _begin(room: Block, nbytes: int) -> Block:
    return Block(room.flat, room.begin, nbytes)


def _after(room: Block, nbytes: int) -> Block:
    return Block(room.flat, room.begin + nbytes, room.nbytes - nbytes)

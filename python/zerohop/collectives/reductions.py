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


def parse_reduction(op: str, factor: float | None) -> Reduction:
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


def all_reduce(turn: Turn, out: Block, block: Block, reduction: Reduction) -> None:
    """Small arrays go to all ranks, each of which reduces all. Of large ones each rank reduces a part."""
    if _is_one_shot(turn.size, block.nbytes):
        _direct(turn, dict.fromkeys(turn.others, block), turn.others, block, out, reduction)
    elif _goes_in_steps(turn, block.nbytes):
        _in_steps(turn, out, block, reduction)
    else:
        _by_slices(turn, out, block, reduction, range(turn.size))


def _is_one_shot(size: int, nbytes: int) -> bool:
    """As in cpp/bindings/sliced_reduce.hpp."""
    return size <= FEW and nbytes <= EAGER and (size - 1) * nbytes <= 2 * EAGER


def _goes_in_steps(turn: Turn, nbytes: int) -> bool:
    """As in cpp/bindings/collective_plan.cpp: other ranks may take that path for the same call."""
    for other in turn.others:
        turn.lines.connect(other, turn.deadline, all_needed=True)
    return nbytes <= _core.Exchange.MOST_IN_STEPS or turn.lines.core.all_near(turn.size)


def _in_steps(turn: Turn, out: Block | None, block: Block, reduction: Reduction) -> None:
    """By cpp/bindings/sliced_reduce.hpp, in host memory: arrays of a GPU go there and back in pieces."""
    whole = block.nbytes
    on_host = block.on_host and (out is None or out.on_host)
    step = whole if on_host else _core.Exchange.chunk_for_reductions(turn.size)
    scratch = None if on_host else turn.copier.kept_scratch(min(step, whole), block)
    sources = block.pieces(step)
    targets = [None] * len(sources) if out is None else out.pieces(step)
    for source, target in zip(sources, targets, strict=True):
        between = None if scratch is None else _begin(scratch, source.nbytes)
        here = source if between is None or source.on_host else _copied(turn, between, source)
        there = target if target is None or target.on_host else between
        turn.reduce(reduction, here, there, whole=whole, before=source.begin - block.begin)
        if target is not None and there is not None:
            turn.copy(target, there)


def reduce(turn: Turn, out: Block | None, block: Block, reduction: Reduction) -> None:
    """out: on the root."""
    if turn.size > FEW or block.nbytes > EAGER:
        if _goes_in_steps(turn, block.nbytes):
            _in_steps(turn, out, block, reduction)
        else:
            _by_slices(turn, out, block, reduction, [turn.root])
    elif turn.rank == turn.root:
        _direct(turn, {}, turn.others, block, out, reduction)
    else:
        _direct(turn, {turn.root: block}, [], block, None, reduction)


def scan(turn: Turn, out: Block, block: Block, reduction: Reduction) -> None:
    """Rank r gets the reduction of ranks 0 to r (MPI_Scan)."""
    if turn.size > FEW or block.nbytes > EAGER:
        _by_slices(turn, out, block, reduction, range(turn.size), prefixes=True)
    else:
        later = dict.fromkeys(range(turn.rank + 1, turn.size), block)
        _direct(turn, later, range(turn.rank), block, out, reduction)


def reduce_scatter(turn: Turn, out: Block, parts: Sequence[Block], reduction: Reduction) -> None:
    """parts: by rank; each rank reduces its own."""
    rank, others = turn.rank, turn.others
    if turn.size <= FEW and max(part.nbytes for part in parts) <= EAGER:
        sends = {other: parts[other] for other in others}
        _direct(turn, sends, others, parts[rank], out, reduction)
        return
    step = max(EAGER, PIECE // (turn.size - 1) // 16 * 16) if others else PIECE
    cuts = [part.pieces(step) for part in parts]
    results = out.pieces(step)
    scratch = turn.copier.kept_scratch(len(others) * max(each.nbytes for each in results), out)
    for number in range(max(map(len, cuts))):
        sends = {other: cuts[other][number] for other in others if number < len(cuts[other])}
        sources, slots = [], dict[int, Block]()
        if number < len(results):
            sources = others
            slots = _cut(scratch, sources, results[number].nbytes)
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
            reduction.into(turn, results[number], [slots[each] for each in sorted(slots)])


def _direct(
    turn: Turn,
    sends: dict[int, Block],
    sources: Iterable[int],
    own: Block,
    out: Block | None,
    reduction: Reduction,
) -> None:
    """In one step. As in cpp/bindings/collective_plan.cpp: other ranks may take that path for the same call."""
    sources = list(sources)
    slots = _cut(turn.copier.kept_scratch(len(sources) * own.nbytes, own), sources, own.nbytes)
    turn.exchange(
        [turn.move(rank, block, part=turn.rank) for rank, block in sends.items()],
        [turn.move(rank, block, part=rank) for rank, block in slots.items()],
    )
    if out is not None:
        slots[turn.rank] = own
        reduction.into(turn, out, [slots[rank] for rank in sorted(slots)])


def _by_slices(
    turn: Turn,
    out: Block | None,
    block: Block,
    reduction: Reduction,
    targets: Sequence[int],
    *,
    prefixes: bool = False,
) -> None:
    """Each rank reduces a slice of each piece, and sends it to the targets, while it gets its slices of the next piece.

    (Rabenseifner: Optimization of collective reduction operations, 2004, with direct exchanges instead of halving.)
    prefixes: for target r only of ranks 0 to r.
    """
    rank, size, whole = turn.rank, turn.size, block.nbytes
    others = turn.others
    pieces = block.pieces(PIECE)
    outs = out.pieces(PIECE) if out is not None else []
    longest = _slices(pieces[0], size)[0].nbytes
    made = len(targets) if prefixes else 1
    scratch = turn.copier.kept_scratch((made + len(others)) * longest, block)
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
        slots = _cut(_after(scratch, made * longest), others, own.nbytes)
        sends += [turn.move(each, slices[each], whole=whole, part=part) for each in others]
        receives += [turn.move(each, slots[each], whole=whole, part=part) for each in others]
        turn.exchange(sends, receives)
        into = _slices(outs[number], size) if outs else []
        slots[rank] = own
        sources = [slots[each] for each in range(size)]
        if prefixes:
            ready = _cut(scratch, targets, own.nbytes)
            for target in targets:
                reduction.into(turn, ready[target], sources[: target + 1])
            turn.copy(into[rank], ready[rank])
        else:
            result = into[rank] if into and into[rank].on_host else _begin(scratch, own.nbytes)
            reduction.into(turn, result, sources)
            if into:
                turn.copy(into[rank], result)
            ready = dict.fromkeys(targets, result)


def _slices(block: Block, size: int) -> list[Block]:
    """A slice for each rank, the longer ones first."""
    elements, itemsize = block.nbytes // block.flat.itemsize, block.flat.itemsize
    slices, begin = [], block.begin
    for rank in range(size):
        nbytes = (elements // size + (rank < elements % size)) * itemsize
        slices.append(Block(block.flat, begin, nbytes))
        begin += nbytes
    return slices


def _cut(scratch: Block, ranks: Sequence[int], nbytes: int) -> dict[int, Block]:
    """So many bytes of the scratch memory for each rank."""
    return {
        rank: Block(scratch.flat, scratch.begin + number * nbytes, nbytes)
        for number, rank in enumerate(ranks)
    }


def _begin(scratch: Block, nbytes: int) -> Block:
    return Block(scratch.flat, scratch.begin, nbytes)


def _after(scratch: Block, nbytes: int) -> Block:
    return Block(scratch.flat, scratch.begin + nbytes, scratch.nbytes - nbytes)

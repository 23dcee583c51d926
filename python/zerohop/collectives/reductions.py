"""Reductions of blocks: which rank reduces what, and in which order.

Blocks are combined in the order of ranks, or across hosts in the order that the World's table of algorithms gives (table.py). So the
result depends on nothing else: it is the same on all ranks, and in every run, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zerohop import _core
from zerohop._world.history import KINDS
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
        """sources: in the order of ranks. A GPU reduces what is in its memory; other blocks go through the host's."""
        if target.nbytes == 0:
            return
        gpu = turn.reducer(target, *sources)
        if gpu is not None:
            gpu.reduce(
                self.op,
                target.flat.dtype,
                self.factor,
                target.address,
                target.nbytes,
                [each.address for each in sources],
                turn.deadline.left,
            )
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
    if isinstance(factor, str):
        raise TypeError(f"factor must be a number, not {factor!r}")
    return Reduction(OPS[op], 1.0 if factor is None else float(factor))


_NAMES = ", ".join(OPS)


def _on_host(turn: Turn, like: Block) -> Block:
    return turn.copier.scratch(like.nbytes, like, for_gpus=True)


def _copied(turn: Turn, target: Block, source: Block) -> Block:
    turn.copy(target, source)
    return target


def all_reduce(turn: Turn, out: Block, block: Block, reduction: Reduction) -> None:
    """As the table has it: arrays go to all ranks, each of which reduces all, or in stages."""
    if turn.topology.is_direct(block.nbytes):
        _direct(turn, dict.fromkeys(turn.others, block), turn.others, block, out, reduction)
    else:
        _in_stages(turn, out, block, reduction)


def reduce(turn: Turn, out: Block | None, block: Block, reduction: Reduction) -> None:
    """out: on the root."""
    if not turn.topology.is_direct(block.nbytes):
        _in_stages(turn, out, block, reduction)
    elif turn.rank == turn.root:
        _direct(turn, {}, turn.others, block, out, reduction)
    else:
        _direct(turn, {turn.root: block}, [], block, None, reduction)


def scan(turn: Turn, out: Block, block: Block, reduction: Reduction) -> None:
    """Rank r gets the reduction of ranks 0 to r (MPI_Scan)."""
    if turn.size > FEW or block.nbytes > EAGER:
        _in_stages(turn, out, block, reduction)
    else:
        later = dict.fromkeys(range(turn.rank + 1, turn.size), block)
        _direct(turn, later, range(turn.rank), block, out, reduction)


def _in_stages(turn: Turn, out: Block | None, block: Block, reduction: Reduction) -> None:
    """By cpp/engine/collective/staged_reduction.hpp: where the arrays are, in the host's memory or a GPU's.

    Slices of up to EAGER bytes of a GPU's array go through host memory, in chunks: there they arrive with their headers.
    """
    kind, root, whole = KINDS.index(turn.call.kind), turn.call.root, block.nbytes
    longest, chunk, room, partners = turn.topology.plan(kind, turn.rank, root, whole)
    turn.connect(partners)
    written = longest > EAGER
    if out is not None and out.flat.device != block.flat.device:
        turn.copy(out, block)
        block = out
    gpu = turn.reducer(block) if written else None
    if not written:
        room = 0  # the engine has its own: it need not be registered
    stays = block.on_host or gpu is not None
    step = whole if stays else min(chunk, whole)
    device = "cpu" if gpu is None else block.flat.device
    scratch = turn.copier.kept_scratch(room + (0 if stays else step), block, device)
    between = None if stays else _after(scratch, room)
    sources = block.pieces(step)
    targets = [None] * len(sources) if out is None else out.pieces(step)
    for source, target in zip(sources, targets, strict=True):
        here, there = source, target
        if between is not None:
            here = _copied(turn, _begin(between, source.nbytes), source)
            there = None if target is None else here
        turn.reduce(
            reduction,
            here,
            there,
            _begin(scratch, room) if room else None,
            whole=whole,
            before=source.begin - block.begin,
            written=written,
            gpu=gpu,
        )
        if target is not None and there is not None:
            turn.copy(target, there)


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
    scratch = _slots(turn, len(others) * max(each.nbytes for each in results), out)
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
    scratch = _slots(turn, len(sources) * own.nbytes, own if out is None else out)
    slots = _cut(scratch, sources, own.nbytes)
    turn.exchange(
        [turn.move(rank, block, part=turn.rank) for rank, block in sends.items()],
        [turn.move(rank, block, part=rank) for rank, block in slots.items()],
    )
    if out is not None:
        slots[turn.rank] = own
        reduction.into(turn, out, [slots[rank] for rank in sorted(slots)])


def _slots(turn: Turn, nbytes: int, out: Block) -> Block:
    """For blocks that are reduced into `out`: in a GPU's memory if it does so."""
    gpu = turn.reducer(out)
    return turn.copier.kept_scratch(nbytes, out, "cpu" if gpu is None else out.flat.device)


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

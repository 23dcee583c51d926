"""The start of a collective of any arrays: checks the arguments, and registers arrays if necessary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zerohop.collectives.algorithms import (
    all_gather,
    all_to_all,
    broadcast,
    gather,
    scatter,
    send_recv,
)
from zerohop.collectives.blocks import Block, Flat, check_apart
from zerohop.collectives.desk import Desk, How
from zerohop.collectives.order import Collective


def start_broadcast(desk: Desk, array: Any, root: int, how: How) -> Collective:
    root = desk.rank(root)
    flat = desk.flat(array, "array", writable=desk.own_rank != root)
    return desk.start(
        "broadcast",
        root,
        [flat],
        how,
        lambda turn: broadcast(turn, flat.whole()),
        flat.nbytes,
    )


def start_scatter(
    desk: Desk, out: Any, parts: Any, root: int, counts: Iterable[int] | None, how: How
) -> Collective:
    root = desk.rank(root)
    target = desk.flat(out, "out", writable=True)
    flats = [target]
    blocks: list[Block] = []
    if desk.own_rank == root:
        sources, blocks = desk.parts(parts, "parts", counts)
        flats += sources
        _check_dtypes(flats)
        _check_own(target.whole(), blocks[root])
        check_apart([target.whole()], _moved(blocks, root, target.whole()))
    return desk.start(
        "scatter",
        root,
        flats,
        how,
        lambda turn: scatter(turn, target.whole(), blocks),
    )


def start_gather(
    desk: Desk, parts: Any, array: Any, root: int, counts: Iterable[int] | None, how: How
) -> Collective:
    root = desk.rank(root)
    source = desk.flat(array, "array")
    flats = [source]
    blocks: list[Block] = []
    if desk.own_rank == root:
        targets, blocks = desk.parts(parts, "parts", counts, writable=True)
        flats += targets
        _check_dtypes(flats)
        _check_own(source.whole(), blocks[root])
        check_apart(blocks, _moved([source.whole()], 0, blocks[root]))
    return desk.start(
        "gather",
        root,
        flats,
        how,
        lambda turn: gather(turn, blocks, source.whole()),
    )


def start_all_gather(
    desk: Desk, out: Any, array: Any, counts: Iterable[int] | None, how: How
) -> Collective:
    source = desk.flat(array, "array")
    flats, blocks = desk.parts(out, "out", counts, writable=True)
    _check_dtypes([source, *flats])
    _check_own(source.whole(), blocks[desk.own_rank])
    check_apart(blocks, _moved([source.whole()], 0, blocks[desk.own_rank]))
    return desk.start(
        "all_gather",
        None,
        [source, *flats],
        how,
        lambda turn: all_gather(turn, blocks, source.whole()),
        sum(block.nbytes for block in blocks),
    )


def start_all_to_all(
    desk: Desk,
    out: Any,
    parts: Any,
    counts: Iterable[int] | None,
    out_counts: Iterable[int] | None,
    how: How,
) -> Collective:
    sources, mine = desk.parts(parts, "parts", counts)
    targets, theirs = desk.parts(out, "out", out_counts, writable=True)
    _check_dtypes([*sources, *targets])
    _check_own(theirs[desk.own_rank], mine[desk.own_rank])
    check_apart(theirs, _moved(mine, desk.own_rank, theirs[desk.own_rank]))
    return desk.start(
        "all_to_all",
        None,
        [*sources, *targets],
        how,
        lambda turn: all_to_all(turn, theirs, mine),
    )


def start_send_recv(
    desk: Desk, to: int | None, array: Any, from_: int | None, out: Any, how: How
) -> Collective:
    to = None if to is None else desk.rank(to, "to=")
    from_ = None if from_ is None else desk.rank(from_, "from_=")
    sends = [] if to is None else [(to, desk.flat(array, "array"))]
    receives = [] if from_ is None else [(from_, desk.flat(out, "out", writable=True))]
    if (to == desk.own_rank) != (from_ == desk.own_rank):
        raise ValueError("a rank that sends to itself must receive in the same call")
    if sends and receives and to == desk.own_rank:
        _check_dtypes([sends[0][1], receives[0][1]])
        _check_own(receives[0][1].whole(), sends[0][1].whole())
    check_apart([flat.whole() for _, flat in receives], [flat.whole() for _, flat in sends])
    return desk.start(
        "send_recv",
        None,
        [flat for _, flat in (*sends, *receives)],
        how,
        lambda turn: send_recv(
            turn,
            [desk.sending(turn, rank, flat.whole()) for rank, flat in sends],
            [desk.receiving(turn, rank, flat.whole()) for rank, flat in receives],
        ),
    )


def _check_own(one: Block, other: Block) -> None:
    if one.nbytes != other.nbytes:
        raise ValueError(
            f"{one.flat.what} has {one.nbytes} bytes, this rank's part of {other.flat.what} {other.nbytes}"
        )


def _check_dtypes(flats: list[Flat]) -> None:
    for flat in flats:
        if flat.dtype != flats[0].dtype:
            raise ValueError(
                f"{flats[0].what} is of {flats[0].dtype}, {flat.what} of {flat.dtype}: a collective has one dtype, on all ranks"
            )


def _moved(blocks: list[Block], own: int, place: Block) -> list[Block]:
    """Without this rank's own block if that lies at its destination."""
    if blocks[own].is_at(place):
        return blocks[:own] + blocks[own + 1 :]
    return blocks

"""What torch.distributed says of its calls holds for those of zerohop: each gives what gloo gives for the same tensors."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.torch_ranks import TIMEOUT

COUNTS = (0, 1, 7, 40_000)  # elements: those of a message, and those that are written
DTYPES = ("float32", "bfloat16", "int64", "bool")


def source(rank: int, count: int, dtype: Any, of: int = 0) -> Any:
    """Of that rank's tensors the one with that number."""
    import torch

    return ((torch.arange(count) * 7 + 31 * rank + 13 * of) % 113).to(dtype)


def room(count: int, dtype: Any) -> Any:
    import torch

    return torch.full((count,), 101).to(dtype)


# --- the calls: each yields the tensors that a rank then has ---


def by_root(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    import torch.distributed as dist

    for root in range(size):
        tensor = source(rank, count, dtype)
        dist.broadcast(tensor, root, group=group)
        yield tensor
        out = room(count, dtype)
        parts = [source(rank, count, dtype, to) for to in range(size)]
        dist.scatter(out, parts if rank == root else None, root, group=group)
        yield out
        outs = [room(count, dtype) for _ in range(size)]
        dist.gather(source(rank, count, dtype), outs if rank == root else None, root, group=group)
        yield from outs


def of_all(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    import torch
    import torch.distributed as dist

    outs = [room(count, dtype) for _ in range(size)]
    dist.all_gather(outs, source(rank, count, dtype), group=group)
    yield from outs
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    out = room(size * count, dtype)
    gather(out, source(rank, count, dtype), group=group)
    yield out
    out = room(size * count, dtype)
    parts = torch.cat([source(rank, count, dtype, to) for to in range(size)])
    dist.all_to_all_single(out, parts, group=group)
    yield out


def reduced(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    """Of values that no order of sums rounds."""
    import torch
    import torch.distributed as dist

    op = dist.ReduceOp
    ops = [op.SUM, op.MIN, op.MAX]
    ops += [op.BAND, op.BOR, op.BXOR] if dtype == torch.int64 else []
    for each in ops:
        tensor = source(rank, count, dtype)
        dist.all_reduce(tensor, each, group=group)
        yield tensor
    tensors = [source(rank, count, dtype, number) for number in range(3)]
    works = [dist.all_reduce(each, group=group, async_op=True) for each in tensors]
    for work in reversed(works):
        work.wait()
    yield from tensors
    for root in range(size):
        tensor = source(rank, count, dtype)
        dist.reduce(tensor, root, group=group)
        if rank == root:
            yield tensor
    for strided in not_contiguous(group, rank, count, dtype):
        dist.all_reduce(strided, group=group, async_op=True).wait()
        yield strided
    for strided in not_contiguous(group, rank, count, dtype):
        dist.reduce(strided, 0, group=group)
        if rank == 0:
            yield strided
    parts = torch.cat([source(rank, count, dtype, to) for to in range(size)])
    scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    out = room(count, dtype)
    scatter(out, parts, group=group)
    yield out
    out = room(count, dtype)
    dist.reduce_scatter(out, list(parts.chunk(size)) if count else [out] * size, group=group)
    yield out


def not_contiguous(group: Any, rank: int, count: int, dtype: Any) -> Iterator[Any]:
    """gloo takes all of them, but for those with gaps its result is wrong, so it gets a copy of those."""
    import torch.distributed as dist

    yield source(rank, 3 * count, dtype).reshape(count, 3).t()
    for cut in (lambda whole: whole[::3], lambda whole: whole.reshape(3, count)[1:, 1:]):
        whole = source(rank, 3 * count, dtype)
        tensor = cut(whole)
        yield tensor.contiguous() if dist.get_backend(group) == "gloo" else tensor
        between = slice(1, min(count, 3))
        assert whole[between].equal(source(rank, 3 * count, dtype)[between])


def in_parts(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    """Of different sizes, some of which may be empty, and of two dimensions."""
    import torch
    import torch.distributed as dist

    def rows(source_rank: int, to: int) -> int:
        return (source_rank + 2 * to) % 3

    counts, out_counts = (
        [rows(rank, to) for to in range(size)],
        [rows(other, rank) for other in range(size)],
    )
    parts = torch.stack(
        [source(rank, count, dtype, row) for row in range(sum(counts))] or [room(count, dtype)]
    )
    out = torch.stack([room(count, dtype)] * max(1, sum(out_counts)))
    dist.all_to_all_single(
        out[: sum(out_counts)], parts[: sum(counts)], out_counts, counts, group=group
    )
    yield out


def between_two(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    """First everybody sends, then everybody receives; then with tags, in another order than what is sent."""
    import torch.distributed as dist

    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    sent = dist.isend(source(rank, count, dtype), right, group=group)
    out = room(count, dtype)
    coming = dist.irecv(out, left, group=group)
    for work in (sent, coming):
        work.wait()
        assert work.is_completed()
    yield out
    outs = [room(count, dtype) for _ in range(2 * size)]
    operations = [
        dist.P2POp(dist.isend, source(rank, count, dtype, 2 * to + tag), to, group, tag)
        for to in range(size)
        for tag in range(2)
        if to != rank
    ] + [
        dist.P2POp(dist.irecv, outs[2 * other + tag], other, group, tag)
        for other in reversed(range(size))
        for tag in reversed(range(2))
        if other != rank
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    yield from outs
    out = room(count, dtype)
    if rank == 0:
        dist.send(source(rank, count, dtype), 1, group=group, tag=3)
    if rank == 1:
        assert dist.recv(out, 0, group=group, tag=3) == 0
        yield out


def behind_the_program(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    import torch.distributed as dist

    tensors = [source(rank, count, dtype, number) for number in range(4)]
    works = [
        dist.broadcast(tensor, number % size, group=group, async_op=True)
        for number, tensor in enumerate(tensors)
    ]
    works.append(dist.barrier(group=group, async_op=True))
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
        work.wait()
    yield from tensors


def of_objects(group: Any, rank: int, size: int, count: int, dtype: Any) -> Iterator[Any]:
    import torch
    import torch.distributed as dist

    def shown(value: Any) -> Any:
        return torch.tensor(list(repr(value).encode()), dtype=torch.uint8)

    mine = {"rank": rank, "word": "x" * count}
    everybody: list[Any] = [None] * size
    dist.all_gather_object(everybody, mine, group=group)
    yield shown(everybody)
    objects = [mine, (rank, size)]
    dist.broadcast_object_list(objects, size - 1, group=group)
    yield shown(objects)
    found: list[Any] = [None] * size
    dist.gather_object(mine, found if rank == 0 else None, 0, group=group)
    yield shown(found)
    part: list[Any] = [None]
    dist.scatter_object_list(part, found if rank == 0 else None, 0, group=group)
    yield shown(part)


CALLS = (by_root, of_all, reduced, in_parts, between_two, behind_the_program, of_objects)


def each_call(dtypes: dict[int, tuple[str, ...]]) -> None:
    """Of the first ranks, as many as the key says, those types."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    for size, names in dtypes.items():
        both: list[Any] = [
            dist.new_group(range(size), backend=each, timeout=timedelta(seconds=TIMEOUT))
            for each in ("zerohop", "gloo")
        ]
        for name in names if rank < size else ():
            dtype = getattr(torch, name)
            for count in COUNTS:
                for call in CALLS:
                    got, expected = (list(call(group, rank, size, count, dtype)) for group in both)
                    assert len(got) == len(expected)
                    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
                        where = f"{call.__name__}, {size} ranks, tensor {number} of {count} {name}"
                        assert torch.equal(one, other), f"{where}: {one} is not {other}"


@pytest.mark.timeout(180)
def test_each_call_gives_what_gloo_gives(torch_job):
    torch_job(each_call, 4, {1: DTYPES[:1], 2: DTYPES, 4: DTYPES[:1]}, backend="gloo")

"""Calls of a process group itself, as the hooks of DistributedDataParallel make them: without options, or with single tensors."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.torch_ranks import TIMEOUT


def calls(group: Any, rank: int, size: int) -> Iterator[tuple[Any, Any]]:
    """Each call, and its output tensors."""
    import torch
    import torch.distributed as dist

    def own() -> Any:
        return torch.arange(4.0) + 10 * rank

    def rooms() -> list[Any]:
        return [torch.empty(4) for _ in range(size)]

    late = timedelta(seconds=TIMEOUT)
    top, t, ts = dist.ReduceOp.MAX, own(), rooms()
    yield group.allreduce([t]), t
    yield group.allreduce([t], top, late), t
    yield group.allreduce(t, op=top), t
    yield group.allreduce(t, timeout=late), t
    yield group.allreduce_coalesced([t]), t
    t = own()
    yield group.broadcast([t]), t
    t = own()
    yield group.broadcast(t, 1), t
    yield group.broadcast(t, root=0, timeout=late), t
    t = own()
    yield group.reduce(t, 1, top), t if rank == 1 else t[:0]
    yield group.allgather([ts], [own()]), ts
    ts = rooms()
    yield group.allgather(ts, own(), late), ts
    ts = rooms() if rank == 1 else []
    yield group.gather(ts, own(), 1), ts
    t = torch.empty(4)
    yield group.scatter(t, [own() + each for each in range(size)] if rank == 1 else [], 1), t
    yield group.reduce_scatter(t, [own() + each for each in range(size)], top), t
    t = torch.empty(4 * size)
    yield group._allgather_base(t, own()), t
    t = torch.empty(4)
    yield group.alltoall_base(t, own(), [], []), t
    yield group.alltoall_base(t, own(), [], [], late), t
    yield group.barrier(), t
    yield group.barrier(timeout=late), t
    yield group.barrier(dist.BarrierOptions()), t


def without_options() -> None:
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    group: Any = dist.new_group(backend="zerohop", timeout=timedelta(seconds=TIMEOUT))
    both = zip(calls(dist.group.WORLD, rank, size), calls(group, rank, size), strict=True)
    for number, ((one, expected), (other, got)) in enumerate(both):
        one.wait()
        other.wait()
        pairs = zip(expected, got, strict=True)
        assert all(torch.equal(*pair) for pair in pairs), f"call {number}: {got} is not {expected}"
    with pytest.raises(
        TypeError, match="allreduce: after the tensors come options, or op, timeout"
    ):
        group.allreduce([torch.ones(1)], root=1)
    with pytest.raises(TypeError, match="scatter: 2 arguments and options, not 1"):
        group.scatter(torch.ones(1))


def test_options_may_be_left_out(torch_job):
    torch_job(without_options, 2, backend="gloo")

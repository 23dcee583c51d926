"""What programs and PyTorch itself make of the backend: coalesced and functional calls, all operations and types, compiled models, checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import zerohop as zh

SIZE = 2


def operations() -> None:
    import torch
    import torch.distributed as dist

    rank, op = dist.get_rank(), dist.ReduceOp
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for each, expected in (
            (op.SUM, 6.0),
            (op.AVG, 3.0),
            (op.PRODUCT, 8.0),
            (op.MIN, 2.0),
            (op.MAX, 4.0),
            (dist._make_nccl_premul_sum(0.5), 3.0),
        ):
            tensor = torch.full((33,), 2.0 + 2 * rank, dtype=dtype)
            dist.all_reduce(tensor, each)
            assert tensor.tolist() == [expected] * 33, f"{each} of {dtype}"
    flags = torch.tensor([rank == 0, True, False])
    for each, expected in ((op.MAX, [True, True, False]), (op.MIN, [False, True, False])):
        tensor = flags.clone()
        dist.all_reduce(tensor, each)
        assert tensor.tolist() == expected


def coalesced() -> None:
    """Of one tensor and of several, by the group's calls and by PyTorch's manager."""
    import torch
    import torch.distributed as dist

    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    for counts in ((3,), (3, 1, 70_000)):
        tensors = [torch.full((count,), 1.0 + rank) for count in counts]
        options = dist.AllreduceCoalescedOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group.allreduce_coalesced(tensors, options).wait()
        assert [set(each.tolist()) for each in tensors] == [{2.0}] * len(counts)
        outs = [torch.empty(SIZE * count) for count in counts]
        own = [torch.full((count,), 1.0 + rank) for count in counts]
        group.allgather_into_tensor_coalesced(outs, own).wait()
        for out, count in zip(outs, counts, strict=True):
            assert out.tolist() == [1.0] * count + [2.0] * count
        group.reduce_scatter_tensor_coalesced(own, outs).wait()
        for each, count in zip(own, counts, strict=True):
            assert each.tolist() == [SIZE * (1.0 + rank)] * count
        with dist._coalescing_manager(group, async_ops=True) as manager:
            for each in tensors:
                dist.all_reduce(each)
        manager.wait()
        assert [set(each.tolist()) for each in tensors] == [{4.0}] * len(counts)
    out, own_one = torch.empty(SIZE), torch.full((1,), float(rank))
    group._allgather_base(out, own_one).wait()
    assert out.tolist() == [0.0, 1.0]
    group._reduce_scatter_base(own_one, out).wait()
    assert own_one.tolist() == [2.0 * rank]


def functional() -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as calls

    rank, group = dist.get_rank(), dist.group.WORLD
    own = torch.full((2,), 1.0 + rank)
    assert calls.all_reduce(own, "sum", group).tolist() == [3.0, 3.0]
    assert calls.all_reduce(own, "avg", group).tolist() == [1.5, 1.5]
    assert calls.reduce_scatter_tensor(own, "sum", 0, group).tolist() == [3.0]
    assert calls.broadcast(own, 1, group).tolist() == [2.0, 2.0]
    assert [each.tolist() for each in calls.all_reduce_coalesced([own, own], "max", group)] == [
        [2.0, 2.0]
    ] * 2
    (gathered,) = calls.all_gather_into_tensor_coalesced([own], group)
    assert gathered.tolist() == [1.0, 1.0, 2.0, 2.0]
    (scattered,) = calls.reduce_scatter_tensor_coalesced([own], "sum", [0], group)
    assert scattered.tolist() == [3.0]


def compiled() -> None:
    """A compiled DistributedDataParallel has the gradients of one process with the inputs of all; a compiled function has collectives."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as calls
    from torch.nn.parallel import DistributedDataParallel

    rank, group = dist.get_rank(), dist.group.WORLD
    inputs = torch.arange(6.0 * SIZE).reshape(SIZE, 6) / 10

    def model() -> Any:
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    alone, shared = model(), DistributedDataParallel(model())
    fast: Any = torch.compile(shared, backend="aot_eager")
    for _ in range(3):  # in the second step DistributedDataParallel makes its buckets anew
        for each, given in ((alone, inputs), (fast, inputs[rank : rank + 1])):
            each.zero_grad()
            each(given).square().sum(1).mean().backward()
        for expected, got in zip(alone.parameters(), shared.parameters(), strict=True):
            assert torch.allclose(expected.grad, got.grad, atol=1e-5)

    def scaled(tensor: Any) -> Any:
        return calls.all_reduce(2 * tensor, "sum", group) + 1

    quick = torch.compile(scaled, backend="aot_eager", fullgraph=True)
    assert quick(torch.full((3,), 1.0 + rank)).tolist() == [7.0] * 3


def checkpoint(place: str) -> None:
    """Parameters that the ranks share are saved, and loaded into others."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (SIZE,))

    def model(seed: int) -> Any:
        torch.manual_seed(seed)
        return fully_shard(torch.nn.Linear(5, 4), mesh=mesh)

    saved, loaded = model(1), model(2)
    dcp.save(saved.state_dict(), checkpoint_id=place)
    state = loaded.state_dict()
    assert not torch.equal(state["weight"].to_local(), saved.weight.to_local())
    dcp.load(state, checkpoint_id=place)
    assert torch.equal(state["weight"].full_tensor(), saved.weight.full_tensor())


def objects() -> None:
    import torch.distributed as dist

    rank = dist.get_rank()
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], 1)
    else:
        got: list[Any] = [None, None]
        assert dist.recv_object_list(got, 0) == 0
        assert got == [{"a": 1}, "b"]


def aborted() -> None:
    """What is pending when its group is aborted ends, on both ranks."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    group: Any = dist.new_group([0, 1])
    dist.barrier(group=group)
    work: Any = None
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    dist.barrier()
    group.abort()
    if rank == 0:
        with pytest.raises(zh.Error):
            work.wait()
        assert not work.is_success()
    with pytest.raises(zh.Error, match="closed"):
        dist.all_reduce(torch.ones(3), group=group)
    dist.barrier()


def one_after_the_other(place: str) -> None:
    for function in (operations, coalesced, functional, objects, aborted, compiled):
        function()
    checkpoint(place)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("backend", ["zerohop", "cpu:zerohop,cuda:zerohop"])
def test_programs(torch_job, tmp_path: Path, backend: str):
    torch_job(one_after_the_other, SIZE, str(tmp_path / "checkpoint"), backend=backend)

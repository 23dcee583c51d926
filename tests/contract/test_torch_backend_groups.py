"""Groups of torch.distributed by zerohop: what gloo has not, groups of some ranks, and what becomes of them."""

import inspect
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, within
from support.launchers import PATIENCE, torchrun
from support.link import until
from support.torch_ranks import TIMEOUT


def more_calls() -> None:
    """Which gloo has not, or not so."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    rank, size = dist.get_rank(), dist.get_world_size()
    outs = [torch.empty(2 + each) for each in range(size)]  # of different sizes
    dist.all_gather(outs, torch.full((2 + rank,), float(rank)))
    assert [out.tolist() for out in outs] == [[float(each)] * (2 + each) for each in range(size)]
    outs = [torch.empty(1 + rank, dtype=torch.complex64) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((1 + to,), complex(rank, to)) for to in range(size)])
    assert [out.tolist() for out in outs] == [
        [complex(other, rank)] * (1 + rank) for other in range(size)
    ]
    row = torch.arange(12.0).reshape(3, 4)[:, 1].add(rank)  # with gaps it is sent as a copy
    gaps = (torch.arange(12.0) + rank).reshape(3, 4)[:, 1]
    out = torch.empty(size, 3)
    dist.all_gather_into_tensor(out, gaps) if not hasattr(dist, "all_gather_single") else (
        dist.all_gather_single(out, gaps)
    )
    assert torch.equal(out[rank], row)
    lists = [[torch.empty(2), torch.empty(3, 1)] for _ in range(size)]
    with pytest.deprecated_call():
        dist.all_gather_coalesced(
            lists, [torch.full((2,), 1.0 + rank), torch.full((3, 1), 5.0 + rank)]
        )
    assert [[float(out.max()) for out in outs] for outs in lists] == [
        [1.0 + each, 5.0 + each] for each in range(size)
    ]
    parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
    dist.broadcast(parameter, size - 1)
    assert parameter.tolist() == [size - 1.0] * 3
    scalar = torch.tensor(float(rank))
    dist.broadcast(scalar, 0)
    assert scalar == 0
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, dist.group.WORLD)
    assert gathered.tolist() == [float(each) for each in range(size) for _ in range(2)]
    sent = torch.arange(float(size))
    swapped = functional.all_to_all_single(sent, None, None, dist.group.WORLD)
    assert swapped.tolist() == [float(rank)] * size


def in_groups() -> None:
    """Groups of some ranks run at the same time, each with its own order, tags and ranks."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    members = ([0, 2], [3, 1], list(range(size)))
    groups = [dist.new_group(ranks, backend="zerohop") for ranks in members]
    for group, ranks in zip(groups, members, strict=True):
        if rank not in ranks:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
            continue
        shown = "(whose rank 0 and so on are global ranks " + ", ".join(map(str, sorted(ranks)))
        assert (shown in group.world.name) == (len(ranks) < size)
        out = torch.empty(len(ranks), dtype=torch.int64)
        parts = list(out.unbind())
        dist.all_gather([part.reshape(1) for part in parts], torch.tensor([rank]), group=group)
        assert out.tolist() == sorted(ranks)
        other = next(each for each in ranks if each != rank)
        work = dist.isend(torch.tensor([rank]), other, group=group)
        if len(ranks) == 2:
            got = torch.empty(1, dtype=torch.int64)
            dist.recv(got, other, group=group)
            work.wait()
            assert got.item() == other
            dist.destroy_process_group(group)


def forty_groups() -> None:
    """They share connections, and neither messages nor failures."""
    import torch
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), [0, 1, 2]
    dist.barrier()
    dist.recv(torch.empty(1), 3) if rank == 0 else dist.send(
        torch.ones(1), 0
    ) if rank == 3 else None
    before = left()
    groups: list[Any] = [dist.new_group(ranks) for _ in range(40)]
    if rank in ranks:
        sent = [
            dist.isend(torch.full((count,), float(number)), (rank + 1) % 3, group=group, tag=7)
            for number, group in enumerate(groups)
            for count in (3, 30_000)
        ]
        for number, group in reversed(list(enumerate(groups))):
            total = torch.full((5,), float(rank + number))
            dist.all_reduce(total, group=group)
            assert total.tolist() == [3.0 * number + 3] * 5
            for count in (3, 30_000):
                out = torch.empty(count)
                dist.recv(out, (rank - 1) % 3, group=group, tag=7)
                assert set(out.tolist()) == {float(number)}
        while sent:
            sent.pop().wait()
    dist.barrier()
    settles_at(before, descriptors=4 * len(groups))
    until(lambda: left()["threads"] <= before["threads"], "no thread is left")
    if rank in ranks:
        for _ in range(len(groups) - 1):
            dist.destroy_process_group(groups.pop())
        dist.all_reduce(torch.ones(1), group=groups[0])
    dist.barrier()
    last = dist.new_group(ranks)
    settles_at(before, descriptors=2 * 4)
    for group in (groups[0], last):
        if rank in ranks:
            dist.barrier(group=group)


def what_a_group_leaves() -> None:
    """Messages that nobody takes end with their group, and no recv of it takes a later one."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    first, second = dist.new_group(), dist.new_group()
    large = torch.ones(1 << 20)
    if rank == 0:
        untaken = dist.isend(large, 1, group=first, tag=1)
        dist.isend(torch.ones(1), 1, group=first, tag=1)
        dist.barrier(group=second)
        first._get_backend(torch.device("cpu")).abort()
        with pytest.raises(zh.PeerLost, match="rank 1"):
            untaken.wait()
    else:
        posted = dist.irecv(torch.zeros(5), 0, group=first, tag=2)
        dist.barrier(group=second)
        with pytest.raises(zh.PeerLost, match=r"rank 0 is lost.*it has left"), within(LOST_WITHIN):
            posted.wait()
        first._get_backend(torch.device("cpu")).abort()
        with pytest.raises(zh.Error, match="the group of this recv is closed"):
            posted.wait()
    out = torch.zeros(5)
    work = dist.isend(torch.full((5,), float(rank)), 1 - rank, group=second, tag=2)
    dist.recv(out, 1 - rank, group=second, tag=2)
    work.wait()
    assert out.tolist() == [1.0 - rank] * 5
    dist.barrier(group=second)


def futures() -> None:
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((3,), float(rank))
    future = dist.broadcast(tensor, 0, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [0.0] * 3
    work = dist.irecv(tensor, (rank - 1) % size)
    future = work.get_future()
    dist.send(torch.full((3,), float(rank)), (rank + 1) % size)
    assert future.wait()[0].tolist() == [(rank - 1.0) % size] * 3
    assert work.is_success()
    assert work.exception() is None
    assert work.source_rank() == (rank - 1) % size


def monitored() -> None:
    """Rank 0 names who has not come; before 2.14 PyTorch itself calls only gloo's."""
    import torch.distributed as dist

    rank, some = dist.get_rank(), dist.new_group([3, 1, 0])
    group: Any
    if hasattr(dist, "_new_window"):
        dist.monitored_barrier()
        dist.monitored_barrier(timeout=timedelta(seconds=TIMEOUT), wait_all_ranks=True)
    else:
        with pytest.raises(ValueError, match="only implemented for GLOO"):
            dist.monitored_barrier()
    late, words = timedelta(seconds=0.5), "failed to pass monitoredBarrier of 'group"
    for all_ranks, who in ((False, "Rank 2"), (True, "Ranks 2, 3")):
        group = dist.new_group()
        group.monitored_barrier(wait_all_ranks=all_ranks)
        if rank == 0:
            with pytest.raises(zh.TransferTimeout, match=f"{who} {words}"), within(5):
                group.monitored_barrier(late, wait_all_ranks=all_ranks)
        elif rank == 1:
            with pytest.raises(zh.TransferTimeout, match="Rank 1 successfully reached"), within(5):
                group.monitored_barrier(late)
        dist.barrier()
    if rank != 2:
        some.monitored_barrier()  # type: ignore[union-attr]


def one_after_the_other() -> None:
    """In the same processes: importing PyTorch takes longer than they do."""
    for function in (more_calls, in_groups, futures, monitored, forty_groups):
        function()


@pytest.mark.timeout(150)
def test_beyond_gloo(torch_job):
    torch_job(one_after_the_other, 4)


def test_what_a_group_leaves(torch_job):
    torch_job(what_a_group_leaves, 2)


def left() -> dict[str, int]:
    """What this process has."""
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "Python's": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": sum("zerohop" in line and ".so" not in line for line in mapped),
    }


def settles_at(before: dict[str, int], descriptors: int) -> None:
    """So many descriptors more than before, once those of connections that are being closed are gone."""
    import torch.distributed as dist

    def settled() -> bool:
        # A group whose ranks did not know in time that all have left it is freed by the next new_group().
        dist.group.WORLD.world._membership._splits.sweep()
        return left()["descriptors"] <= before["descriptors"] + descriptors

    until(settled, f"at most {descriptors} descriptors more")


def no_more_than(before: dict[str, int]) -> bool:
    return all(count <= before[what] for what, count in left().items())


def again_and_again() -> None:
    """Groups come and go, over the same store, and leave neither threads nor descriptors nor mappings."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    found = []
    for number in range(4):
        dist.destroy_process_group()
        if number < 2:
            found.append(left())  # perhaps with a thread that is about to end
        else:
            until(lambda: no_more_than(found[1]), f"as little as {found[1]}")
        dist.init_process_group(
            "zerohop", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=TIMEOUT)
        )
        out = torch.empty(size)
        parts = [out[each : each + 1] for each in range(size)]
        dist.all_gather(parts, torch.full((1,), 10.0 * number + rank), async_op=True).wait()
        assert out.tolist() == [10.0 * number + each for each in range(size)]
        work = dist.isend(torch.zeros(1 << 16), (rank + 1) % size)
        dist.recv(torch.empty(1 << 16), (rank - 1) % size)
        work.wait()
        dist.barrier()


def test_a_group_leaves_nothing_behind(torch_job):
    torch_job(again_and_again, 2)


JOB = """
import torch
import torch.distributed as dist
import zerohop.torch

dist.init_process_group("zerohop")
rank, size = dist.get_rank(), dist.get_world_size()
out = torch.empty(size)
dist.all_to_all_single(out, torch.arange(float(size)) + 10 * rank)
found = [None] * size
dist.all_gather_object(found, out.tolist())
if rank == 0:
    print(found)
dist.barrier()
if rank:  # rank 0 ends as it is
    dist.destroy_process_group()
"""


@pytest.mark.timeout(PATIENCE)
def test_torchrun_starts_it(tmp_path, device):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    done = torchrun(2, str(path), cwd=tmp_path, ZEROHOP_DEVICE=device)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[0.0, 10.0], [1.0, 11.0]]\n"


def beside_a_gpu(gpu: Any) -> Any:
    """PyTorch then allows split_group."""
    import torch

    return patch.multiple(
        torch.accelerator,
        is_available=lambda: True,
        current_accelerator=lambda check_available=False: gpu,
    )


def split() -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    whole: Any = dist.group.WORLD
    gpu = torch.device("cuda:0")
    whole.eager_connect_single_device(gpu)  # as init_process_group(device_id=...) calls it
    if not hasattr(dist.ProcessGroup, "supports_abort_hooks") and hasattr(dist, "_new_window"):
        with beside_a_gpu(gpu), pytest.raises(RuntimeError, match="No device associated"):
            dist.split_group(split_ranks=[[0, 1], [2, 3]])  # as PyTorch 2.14 does, and only that
        dist.barrier(group=dist.new_group())
        return
    is_sorted = not hasattr(dist, "_new_window")  # by PyTorch, before 2.14
    odd = [1, 3] if is_sorted else [3, 1]
    chosen: list[dict[str, Any]] = [{}]
    if "backend" in inspect.signature(dist.split_group).parameters:
        chosen.append({"backend": "cpu:zerohop"})
    for backend in chosen:
        with beside_a_gpu(gpu):
            half: Any = dist.split_group(
                split_ranks=[[0, 2], [3, 1]], timeout=timedelta(seconds=TIMEOUT), **backend
            )
        assert dist.get_world_size(half) == 2
        ranks = odd if rank % 2 else [0, 2]
        assert dist.get_process_group_ranks(half) == ranks
        assert dist.get_rank(half) == ranks.index(rank)
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=half)
        assert tensor.item() == (2.0 if rank % 2 == 0 else 4.0)
        assert [device.type for device in half._device_types] == ["cpu"] + ["cuda"] * (not backend)
    with beside_a_gpu(gpu):
        one = dist.split_group(half, [[1]])
    assert isinstance(one, dist.ProcessGroup) == (rank in (2, odd[1]))
    some = dist.new_group([1, 2])  # PyTorch tells the ranks that are not in it
    if rank in (1, 2):
        dist.barrier(group=some)
    whole.bound_device_id = None
    if hasattr(dist.ProcessGroup, "supports_abort_hooks"):  # PyTorch 2.15 needs no GPU for it
        pair: Any = dist.split_group(split_ranks=[[3, 2], [0, 1]])
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, group_src=0, group=pair)
        assert tensor.item() == (3.0 if rank > 1 else 0.0)
    dist.barrier()
    for group in (half, one):
        if isinstance(group, dist.ProcessGroup):
            dist.destroy_process_group(group)


def test_a_group_is_split(torch_job):
    torch_job(split, 4, backend="cpu:zerohop,cuda:zerohop")


def one_way() -> None:
    """The receiver sends nothing in this group, and says goodbye nevertheless."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    tensor = torch.full((4,), 7.0 * (1 - rank))
    if rank == 0:
        dist.send(tensor, 1, group=pair)
    else:
        dist.recv(tensor, 0, group=pair)
    assert tensor.tolist() == [7.0] * 4
    dist.barrier()
    with within(1.5):  # without a goodbye 2 s
        dist.destroy_process_group(pair)


def test_a_receiver_says_goodbye(torch_job):
    torch_job(one_way, 2)

"""Calls of torch.distributed that zerohop refuses, that ranks make differently, or that a rank that dies ends."""

import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, within
from support.link import until
from support.patience import patient
from support.spawned import Worker
from support.torch_ranks import TIMEOUT, torch_ranks


def refused_arguments() -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    other = 1 - rank
    gaps = torch.ones(4, 4).t()[:2]
    with pytest.raises(ValueError, match="not contiguous"):
        dist.broadcast(gaps, other)
    with pytest.raises(ValueError, match="not contiguous"):
        dist.irecv(gaps, other)
    with pytest.raises(ValueError, match=r"layout torch.sparse_coo"):
        dist.isend(torch.eye(3).to_sparse(), other)
    with pytest.raises(ValueError, match="the rank itself"):
        dist.isend(torch.ones(3), rank)
    with pytest.raises(ValueError, match="tags go from 0"):
        dist.isend(torch.ones(3), other, tag=-1)
    with pytest.raises(ValueError, match="broadcast of meta tensors"):
        dist.broadcast(torch.ones(3, device="meta"), 0)
    with pytest.raises(ValueError, match="1 arrays for 2 ranks"):
        dist.all_to_all([torch.ones(3)], [torch.ones(3), torch.ones(3)])
    with pytest.raises(ValueError, match="negative view of another"):
        dist.irecv(torch._neg_view(torch.ones(3)), other)
    for splits, words in (([1, 1], "output_split_sizes must be 2 numbers"), ([], "3 rows cannot")):
        with pytest.raises(ValueError, match=words):
            dist.all_to_all_single(torch.ones(3), torch.ones(4), splits, [2, 2])
    with pytest.raises(ValueError, match="input_split_sizes must be 2 numbers"):
        dist.all_to_all_single(torch.ones(4), torch.ones(4), [2, 2], [5, -1])
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    with pytest.raises(
        ValueError, match=r"5 elements does not hold 2 parts of 2, .* give one of 4"
    ):
        gather(torch.ones(5), torch.ones(2))
    with pytest.raises(
        ValueError, match=r"4 elements does not hold 2 parts of 3, .* give one of 6"
    ):
        scatter(torch.ones(3), torch.ones(4))
    for call, sizes in ((gather, (4, 2)), (scatter, (2, 4))):
        with pytest.raises(ValueError, match=r"torch.float\d\d, the other of torch.float\d\d"):
            call(torch.ones(sizes[0], dtype=torch.float64), torch.ones(sizes[1]))
    both = torch.ones(2)
    with pytest.raises(ValueError, match="overlaps"):
        dist.all_gather([both, both], torch.ones(2))
    tensor = torch.full((2,), float(rank))
    dist.broadcast(tensor, 0)  # nothing is broken
    assert tensor.tolist() == [0.0, 0.0]


def lengths_of_messages() -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    if rank == 0:
        works = [dist.isend(torch.ones(10), 1, tag=1), dist.isend(torch.ones(10), 1, tag=2)]
        works[0].wait()
        works[1].wait()
    else:
        longer, shorter, right = torch.zeros(20), torch.zeros(5), torch.zeros(10)
        work = dist.irecv(longer, 0, tag=1)
        for _ in range(2):
            with pytest.raises(
                ValueError, match=r"tag 1: rank 0 has sent 40 bytes, .* tensor of 80"
            ):
                work.wait()
        assert longer.sum() == 10
        assert isinstance(work.exception(), ValueError)
        assert not work.is_success()
        for _ in range(2):
            with pytest.raises(ValueError, match=r"recv from rank 0 of 'group 0', tag 2: .*40"):
                dist.recv(shorter, 0, tag=2)
        dist.recv(right, 0, tag=2)  # it has stayed for one that has room
        assert right.sum() == 10


def calls_that_differ() -> None:
    """The first one is the group's last, on both ranks; another group goes on."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    second = dist.new_group(backend="zerohop")
    with pytest.raises(ValueError, match=r"broadcast.* \(40000[04] bytes\)"), within(TIMEOUT / 2):
        dist.broadcast(torch.ones(100_000 + rank), 0)
    with pytest.raises(zh.Error, match=r"collectives of this group have ended.*\(new_group\)"):
        dist.broadcast(torch.ones(3), 0)
    tensor = torch.full((2,), float(rank))
    dist.broadcast(tensor, 1, group=second)
    assert tensor.tolist() == [1.0, 1.0]
    dist.barrier(group=second)


def out_of_time() -> None:
    """Of the group, of a call's wait, and then of the group again."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    short = dist.new_group(backend="zerohop", timeout=timedelta(seconds=1))
    if rank == 0:
        message = torch.empty(3)
        late = r"recv from rank 1.*has not made a matching send.*within 1 s"
        with pytest.raises(zh.TransferTimeout, match=late), within(5, at_least=0.9):
            dist.recv(message, 1, group=short)
        work = dist.broadcast(torch.empty(3), 1, group=short, async_op=True)
        with pytest.raises(TimeoutError), within(0.9, at_least=0.2):
            work.wait(timedelta(seconds=0.2))
        assert not work.is_completed()
        with pytest.raises(zh.TransferTimeout, match=r"broadcast.*give the group a"), within(5):
            work.get_future().wait()
        assert isinstance(work.exception(), zh.TransferTimeout)
    dist.barrier()
    if rank == 1:
        with pytest.raises(zh.Error, match=r"barrier: .*rank 0"), within(5):
            dist.barrier(group=short)
    dist.barrier()


def training() -> None:
    """DDP takes the value of a future in C++."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    short = dist.new_group(backend="zerohop", timeout=timedelta(seconds=1))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), process_group=short)
    model(torch.ones(4)).sum().backward()
    if rank == 0:
        with pytest.raises(RuntimeError, match="TransferTimeout: all_reduce"), within(10):
            model(torch.ones(4)).sum().backward()
    dist.barrier()


def all_of_them() -> None:
    """In one job, one after the other; the last ends the group."""
    refused_arguments()
    lengths_of_messages()
    out_of_time()
    training()
    calls_that_differ()


def test_what_is_wrong_is_reported(torch_job):
    torch_job(all_of_them, 2)


def beside_gloo() -> None:
    """Tensors of hosts go by gloo, which reduces them; those of GPUs would go by zerohop."""
    import torch
    import torch.distributed as dist
    import zerohop.torch

    group: Any = dist.group.WORLD
    rank, size = dist.get_rank(), dist.get_world_size()
    assert type(group) is zerohop.torch.ProcessGroup
    assert {device.type for device in group._device_types} == {"cpu", "cuda"}
    tensor = torch.full((3,), 1.0 + rank)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size * (size + 1) / 2] * 3
    out = torch.empty(1)
    work = dist.isend(tensor[:1], (rank + 1) % size)
    dist.recv(out)  # from any, which gloo knows
    work.wait()
    assert out == tensor[0]
    dist.barrier()
    found = [None] * size
    dist.all_gather_object(found, rank)
    assert found == list(range(size))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    model(torch.full((3,), float(rank))).sum().backward()
    both = dist.new_group([0, 1], backend="cpu:gloo,cuda:zerohop")
    if rank < 2:
        dist.all_reduce(tensor, group=both)


def test_beside_gloo_in_one_group(torch_job):
    torch_job(beside_gloo, 3, backend="cpu:gloo,cuda:zerohop")


def orders() -> None:
    """Whichever stands first serves its own."""
    import torch
    import torch.distributed as dist

    size = dist.get_world_size()
    for string in ("cuda:zerohop,cpu:gloo", "CPU:gloo,CUDA:zerohop"):
        group = dist.new_group(backend=string)
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [size] * 3
    for string in ("cpu:zerohop,cuda:gloo", "cuda:gloo,cpu:zerohop", "cpu:zerohop,cuda:zerohop"):
        group = dist.new_group(backend=string)
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [size] * 3
        out = torch.full((3,), float(dist.get_rank()))
        dist.broadcast(out, 1, group=group)
        assert out.tolist() == [1.0] * 3
        inherits = dist.new_group()  # the default group's string
        dist.barrier(group=inherits)


def test_the_order_of_backends_in_a_string(torch_job):
    torch_job(orders, 2)


SPREAD = 2.0  # seconds beside those in which a loss is seen: from rank to rank
SIZE = 3


@pytest.fixture
def dying(tmp_path, device, monkeypatch):
    """The last rank, on its way."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    last = Worker("support.torch_ranks", tmp_path / "store", SIZE)
    last.tell("come")
    yield last
    last.discard()


def survive(stopped: str) -> None:
    """stopped: a file that comes to be when the last rank is no more. The others wait for it, one way and another."""
    import torch
    import torch.distributed as dist

    rank, last = dist.get_rank(), SIZE - 1
    group = dist.new_group([0, last])
    if rank == 0:
        dist.barrier(group=group)
    dist.barrier()
    pending: list[Any] = [
        dist.irecv(torch.empty(100), last),
        dist.isend(torch.empty(100_000), last, tag=1),
        dist.broadcast(torch.empty(100), last, async_op=True),
        dist.barrier(async_op=True),
        dist.irecv(torch.empty(100), tag=2),
    ]
    if rank == 0:
        pending.append(dist.broadcast(torch.empty(100), last, group=group, async_op=True))
    future = pending[0].get_future()
    assert not any(work.is_completed() for work in pending)
    Path(f"{stopped} waits for rank {rank}").touch()
    until(lambda: Path(stopped).exists(), "the last rank is no more", patient(60))
    begin = time.monotonic()
    for number, work in enumerate(pending):
        name = "rank 1" if number == 5 else f"rank {last}"  # in the group of two
        with pytest.raises(zh.PeerLost, match=name):
            work.wait()
        error = work.exception()
        assert isinstance(error, zh.PeerLost)
        assert "shrink()" not in str(error)
        assert "connect again" not in str(error)
    assert time.monotonic() - begin < LOST_WITHIN + SPREAD
    with pytest.raises(zh.PeerLost, match=f"rank {last}"):
        future.wait()
    with pytest.raises(zh.PeerLost, match=rf"rank {last}.*; to go on, .*init_process_group\(\)"):
        dist.isend(torch.ones(3), last).wait()
    with pytest.raises(zh.PeerLost, match=rf"ended: .*rank {last}.*\. To go on, .*max-restarts"):
        dist.broadcast(torch.ones(3), 0)
    other = 1 - rank  # those that are left reach each other
    work = dist.isend(torch.full((3,), float(rank)), other)
    out = torch.empty(3)
    dist.recv(out, other)
    work.wait()
    assert out.tolist() == [float(other)] * 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_hangs_is_lost(tmp_path, dying, number):
    stopped = tmp_path / "stopped"
    with torch_ranks(tmp_path / "store", survive, SIZE - 1, str(stopped), of=SIZE) as ranks:
        assert dying.answer(patient(60)) is None
        waiting = [tmp_path / f"stopped waits for rank {rank}" for rank in range(SIZE - 1)]
        until(lambda: all(each.exists() for each in waiting), "all wait", patient(60))
        dying.signal(number)
        stopped.touch()
        ranks.results()

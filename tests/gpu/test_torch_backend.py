"""torch.distributed by zerohop between GPUs: two ranks on one GPU, and on two where the machine has them."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.torch_ranks import torch_ranks

APART = min(2, torch.cuda.device_count())  # GPUs that two ranks use at most
COUNTS = (0, 1, 1001, 3 << 20)  # elements


def own_gpu(gpus: int) -> Any:
    device = torch.device("cuda", dist.get_rank() % gpus)
    torch.cuda.set_device(device)
    return device


def each_call(gpus: int) -> None:
    """With a tensor of the host among them now and then."""
    device, rank, other = own_gpu(gpus), dist.get_rank(), 1 - dist.get_rank()

    def made(count: int, *values: float) -> Any:
        rows = [torch.full((count,), value, dtype=torch.bfloat16) for value in values]
        return torch.cat(rows).to(device)

    def shows(tensor: Any, count: int, *values: float) -> None:
        assert torch.equal(tensor, made(count, *values)), f"{values}: {tensor}"

    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    for count in COUNTS:
        tensor, out, both = made(count, rank), made(count, 77), made(count, 77, 77)
        dist.broadcast(tensor, 1)
        shows(tensor, count, 1)
        gather(both, made(count, 10 + rank))
        shows(both, count, 10, 11)
        outs = [made(count, 77), made(count, 77)]
        dist.all_gather(outs, made(count, 20 + rank))
        shows(torch.cat(outs), count, 20, 21)
        dist.all_to_all_single(both, made(count, 2 * rank, 2 * rank + 1))
        shows(both, count, rank, 2 + rank)
        dist.scatter(out, [made(count, 30), made(count, 31)] if rank == 0 else None, 0)
        shows(out, count, 30 + rank)
        dist.gather(out, outs if rank == 1 else None, 1)
        if rank == 1:
            shows(torch.cat(outs), count, 30, 31)
        works = [dist.isend(made(count, 40 + rank), other), dist.irecv(out, other)]
        for work in works:
            work.wait()
        shows(out, count, 40 + other)
        host = torch.full((count,), 50 + rank, dtype=torch.bfloat16)
        dist.broadcast(host if rank else out, 1)  # from a host to a GPU
        shows(out if rank == 0 else host.to(device), count, 51)
        future = dist.broadcast(tensor, 0, async_op=True).get_future()
        future.wait()
        tensor = made(count, rank + 1)
        dist.all_reduce(tensor)
        shows(tensor, count, 3)
        host = torch.full((count,), rank + 1, dtype=torch.bfloat16)
        dist.all_reduce(host if rank else tensor)  # one of a host, one of a GPU
        shows(host.to(device) if rank else tensor, count, 5)
        scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        scatter(out, made(count, rank, rank + 2), op=dist.ReduceOp.AVG)
        shows(out, count, 2.5 if rank else 0.5)
    found: list[Any] = [None, None]
    dist.all_gather_object(found, rank)
    assert found == [0, 1]
    dist.barrier()


def in_streams(gpus: int) -> None:
    """What the current stream was given before a call is sent, and not written over; what comes after finds what came."""
    device, rank, other = own_gpu(gpus), dist.get_rank(), 1 - dist.get_rank()
    stream: Any = torch.cuda.Stream(device)
    for count in (100, 1 << 20):
        tensor, seen = torch.zeros(count, device=device), torch.zeros(count, device=device)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for number in range(1, 11):
                torch.cuda._sleep(5_000_000)
                seen.copy_(tensor)  # of the round before: the next one must not come too early
                if rank == number % 2:
                    tensor.fill_(number)
                if number < 6:
                    dist.broadcast(tensor, number % 2)
                elif rank == number % 2:
                    dist.isend(tensor, other).wait()
                else:
                    dist.irecv(tensor, other).wait()
                assert bool((seen == number - 1).all())
                assert bool((tensor == number).all())
    dist.barrier()


def trained(gpus: int) -> None:
    """By DDP and by FSDP2 what one process finds for both batches."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device, rank = own_gpu(gpus), dist.get_rank()
    batches = torch.arange(64.0).reshape(2, 4, 8).to(device) / 64

    def losses(model: Any, batch: Any, wrap: Any) -> Any:
        model = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.detach().clone())
        return torch.stack(found)

    def model() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        ).to(device)

    alone = losses(model(), batches.flatten(0, 1), lambda each: each)
    mesh = init_device_mesh("cuda", (2,)) if gpus > 1 else None
    wraps = [torch.nn.parallel.DistributedDataParallel]
    if mesh is not None:
        wraps.append(lambda each: fully_shard(each, mesh=mesh))
    for wrap in wraps:
        both = losses(model(), batches[rank], wrap)
        dist.all_reduce(both, dist.ReduceOp.AVG)
        assert torch.allclose(both, alone, rtol=1e-4), (both, alone)


def beside_gloo(gpus: int) -> None:
    """The host's tensors go by gloo, the GPUs' by zerohop."""
    device = own_gpu(gpus)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 3
    tensor = torch.full((3,), float(dist.get_rank()), device=device)
    dist.broadcast(tensor, 1)
    assert tensor.tolist() == [1.0] * 3
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize("p2p", ["1", "0"])
@pytest.mark.parametrize("gpus", range(1, APART + 1))
@pytest.mark.parametrize("function", [each_call, in_streams, trained])
def test_tensors_of_gpus_arrive(tmp_path, monkeypatch, function, gpus, p2p):
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    monkeypatch.setenv("ZEROHOP_P2P", p2p)
    with torch_ranks(tmp_path / "store", function, 2, gpus) as ranks:
        ranks.results()


def test_beside_gloo_in_one_group(tmp_path):
    string = "cpu:gloo,cuda:zerohop"
    with torch_ranks(tmp_path / "store", beside_gloo, 2, APART, backend=string) as ranks:
        ranks.results()

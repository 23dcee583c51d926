"""A PyTorch model trained on the backend zerohop: by DistributedDataParallel, by fully_shard (FSDP2), and as DTensors."""

import argparse
import os
import subprocess
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import zerohop.torch  # noqa: F401 adds the backend


def make_model() -> Any:
    torch.manual_seed(0)  # the same on all ranks
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.Sequential(
        nn.Embedding(100, 32),
        nn.TransformerEncoder(layer, 2),
        nn.Linear(32, 100),
        nn.LogSoftmax(-1),
    )


def train(model: Any, ranks: list[int], steps: int) -> float:
    """On the parts of the batch of these ranks. Returns the last loss of all ranks."""
    parts = [
        torch.randint(0, 100, (4, 16), generator=torch.Generator().manual_seed(r)) for r in ranks
    ]
    tokens = torch.cat(parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss: Any = nn.functional.nll_loss(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    if len(ranks) == 1:
        dist.all_reduce(mean, dist.ReduceOp.AVG)
    return float(mean)


def check(what: str, found: float, right: float) -> None:
    if abs(found - right) > 1e-4 * abs(right):
        sys.exit(f"WRONG: {what} gives {found}, one process {right}")
    if dist.get_rank() == 0:
        print(f"{what}: {found:.5f}")


def run(steps: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    right = train(make_model(), list(range(size)), steps)  # the whole batch in one process
    check(
        "loss by DDP",
        train(nn.parallel.DistributedDataParallel(make_model()), [rank], steps),
        right,
    )
    mesh = init_device_mesh("cpu", (size,))
    sharded = make_model()
    for layer in sharded[1].layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    check("loss by FSDP2", train(sharded, [rank], steps), right)
    matrix = torch.arange(size * 12.0).reshape(size * 3, 4)
    product: Any = distribute_tensor(matrix, mesh, [Shard(0)]).T @ distribute_tensor(
        matrix, mesh, [Shard(0)]
    )
    whole = product.redistribute(mesh, [Replicate()]).to_local()  # sums the ranks' parts
    check(
        "trace of a product of DTensors", float(whole.trace()), float((matrix.T @ matrix).trace())
    )
    dist.barrier()
    if rank == 0:
        print(f"Everything equals one process, on {size} ranks.")


def start(ranks: int) -> int:
    """Without a launcher, starts this program once for each rank."""
    with tempfile.TemporaryDirectory() as store:  # where the ranks meet
        job = {**os.environ, "WORLD_SIZE": str(ranks), "STORE": store, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *sys.orig_argv[1:]]
        started = [
            subprocess.Popen(command, env=job | {"RANK": str(rank)}) for rank in range(ranks)
        ]
        return max(abs(process.wait()) for process in started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"steps": 5, "ranks": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if "WORLD_SIZE" not in os.environ:
        sys.exit(start(options.ranks))
    store, rank, size = (
        os.environ.get("STORE"),
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
    )
    where: dict[str, Any] = (
        {"init_method": f"file://{store}/store", "rank": rank, "world_size": size} if store else {}
    )
    dist.init_process_group("zerohop", **where)
    run(options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

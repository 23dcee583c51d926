"""A PyTorch model trained by DistributedDataParallel: ``torchrun --nproc-per-node 2 -m zerohop.examples.ddp``."""

import argparse
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zerohop.torch  # noqa: F401 adds the backend


def make_model() -> nn.Module:
    torch.manual_seed(0)  # the same on all ranks
    return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))


def batch(rank: int) -> Any:
    inputs = torch.randn(32, 20, generator=torch.Generator().manual_seed(rank))
    return inputs, inputs.sum(1, keepdim=True)


def train(model: nn.Module, inputs: Any, targets: Any, steps: int) -> float:
    """Returns the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss: Any = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # DDP averages the gradients meanwhile
        optimizer.step()
    return float(loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    dist.init_process_group("zerohop")
    rank, size = dist.get_rank(), dist.get_world_size()
    inputs, targets = batch(rank)
    mean = torch.tensor(train(DistributedDataParallel(make_model()), inputs, targets, steps))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    inputs, targets = map(torch.cat, zip(*map(batch, range(size)), strict=True))
    right = train(make_model(), inputs, targets, steps)  # all batches in one process
    if abs(float(mean) - right) > 1e-4 * right:
        sys.exit(f"WRONG: DDP ends with the loss {float(mean)}, one process with {right}")
    if rank == 0:
        print(f"The loss of {size} ranks equals that of one process: {right:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

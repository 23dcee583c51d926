"""A PyTorch model whose parameters the ranks share (FSDP2): ``torchrun --nproc-per-node 2 -m zerohop.examples.fsdp2``."""

import argparse
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

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


def batch(rank: int) -> Any:
    return torch.randint(0, 100, (4, 16), generator=torch.Generator().manual_seed(rank))


def train(model: nn.Module, tokens: Any, steps: int) -> float:
    """Returns the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss: Any = nn.functional.nll_loss(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    steps = parser.parse_args().steps
    dist.init_process_group("zerohop")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    model = make_model()
    for layer in model[1].layers:  # gathered by all_gather when used, reduced by reduce_scatter
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mean = torch.tensor(train(model, batch(rank), steps))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    right = train(make_model(), torch.cat([batch(each) for each in range(size)]), steps)
    if abs(float(mean) - right) > 1e-4 * right:
        sys.exit(f"WRONG: FSDP2 ends with the loss {float(mean)}, one process with {right}")
    if rank == 0:
        print(f"The loss of {size} ranks equals that of one process: {right:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

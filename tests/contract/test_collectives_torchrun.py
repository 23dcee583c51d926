"""Ranks that torchrun starts make collectives with PyTorch's tensors."""

from __future__ import annotations

import pytest
from support.launchers import PATIENCE, torchrun

RANKS = 3
JOB = """
import torch
import zerohop as zh

with zh.World.from_env(timeout=30) as world:
    weights = torch.full((100_000,), float(world.rank))
    under_way = world.broadcast(weights, root=2, wait=False)
    out = torch.empty(world.size, 2, dtype=torch.bfloat16)
    world.all_to_all(out, torch.arange(2 * world.size, dtype=torch.bfloat16) + 10 * world.rank)
    under_way.wait()
    assert out[:, 0].tolist() == [10 * rank + 2 * world.rank for rank in range(world.size)]
    ends = torch.empty(world.size) if world.rank == 0 else None
    world.gather(ends, weights[-1:], root=0)
    if world.rank == 0:
        print(ends.tolist(), world.state())
    world.barrier()
"""


@pytest.mark.timeout(PATIENCE)
def test_torchrun_starts_collectives(tmp_path, device):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    done = torchrun(RANKS, str(path), cwd=tmp_path, ZEROHOP_DEVICE=device)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[2.0] * RANKS} {['healthy'] * RANKS}\n"

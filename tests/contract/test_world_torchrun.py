"""A job that torchrun starts finds itself: World.from_env()."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from support.launchers import PATIENCE, torchrun
from support.patience import patient

RANKS = 3
# Every rank writes to all, counts at rank 0, and rank 0 shows what came; the lines of others would mix.
JOB = """
import numpy as np
import zerohop as zh

with zh.World.from_env(timeout=30) as world:
    segment = world.segment(8 * (world.size + 1), dtype="int64")
    for rank in range(world.size):
        segment.write_notify(rank, np.array([world.rank + 10 * rank]), 8 * world.rank, slot=world.rank)
    for rank in range(world.size):
        assert segment.notify_waitsome(rank, 1) == rank
    segment.wait()
    assert segment.local[:-1].tolist() == [rank + 10 * world.rank for rank in range(world.size)]
    segment.atomic_fetch_add(0, 8 * world.size, 1)
    world.barrier()
    if world.rank == 0:
        print(world.size, world.local_rank, segment.local.tolist(), world.state())
    world.barrier()
"""


SHOWN = f"3 0 [0, 1, 2, 3] {['healthy'] * RANKS}\n"


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def environment(device, **variables):
    return {**os.environ, "ZEROHOP_DEVICE": device, "OMP_NUM_THREADS": "1", **variables}


@pytest.mark.timeout(PATIENCE)
def test_torchrun_starts_a_world(job, device):
    done = torchrun(RANKS, str(job), cwd=job.parent, ZEROHOP_DEVICE=device)
    assert done.returncode == 0, done.stderr
    assert done.stdout == SHOWN


@pytest.mark.timeout(PATIENCE)
def test_plain_variables_make_a_world(job, device):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, str(job)],
            cwd=job.parent,
            env=environment(
                device,
                RANK=str(rank),
                WORLD_SIZE=str(RANKS),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in reversed(range(RANKS))
    ]
    said = [process.communicate(timeout=patient(150)) for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, said
    assert said[-1][0] == SHOWN

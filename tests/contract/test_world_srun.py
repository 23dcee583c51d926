"""A job that srun starts, by a real Slurm of this host, finds itself: World.from_env()."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launchers import PATIENCE, needs, run_ranks
from support.slurm import slurm

RANKS = 3
JOB = """
import sys
import numpy as np
import zerohop as zh

with zh.World.from_env(store=sys.argv[1] if sys.argv[1:] else None, timeout=30) as world:
    found = np.zeros((world.size, 2), "int64")
    world.all_gather(found, np.array([world.rank, world.local_rank]))
    if world.rank == 0:
        print(world.size, found.tolist(), world.state())
    world.barrier()
"""
SHOWN = f"3 [[0, 0], [1, 1], [2, 2]] {['healthy'] * RANKS}\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    needs(commands=("srun", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"))
    with slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("meeting", ["a directory", "MASTER_ADDR and MASTER_PORT"])
def test_srun_starts_a_world(
    meeting: str, cluster: dict[str, str], device: str, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    variables = {**cluster, "ZEROHOP_DEVICE": device}
    arguments = []
    if meeting == "a directory":
        store = tmp_path / "store"
        store.mkdir(mode=0o700)
        arguments.append(str(store))
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = ["srun", "--ntasks", str(RANKS), sys.executable, str(job), *arguments]
    done = run_ranks(command, tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == SHOWN


@pytest.mark.timeout(PATIENCE)
def test_ranks_that_are_not_told_where_to_meet_say_so(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = run_ranks(["srun", "--ntasks", "2", sys.executable, str(job)], tmp_path, **cluster)
    assert done.returncode != 0
    assert "srun has told this process its rank, but not where the ranks meet" in done.stderr

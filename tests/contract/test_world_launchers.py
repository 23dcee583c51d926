"""Jobs that torchrun or srun starts, or nobody, find themselves by World.from_env(); and ranks that meet in Redis."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import zerohop as zh
from support.launchers import PATIENCE, needs, run_ranks, torchrun
from support.link import until
from support.patience import patient
from support.ranks import TIMEOUT
from support.slurm import slurm
from zerohop.local import Link, Ranks

RANKS = 3
# Every rank writes to all, counts at rank 0, and rank 0 shows what came; the lines of others would mix.
JOB = """
import sys
import numpy as np
import zerohop as zh

with zh.World.from_env(store=sys.argv[1] if sys.argv[1:] else None, timeout=30) as world:
    segment = world.segment(8 * (world.size + 1), dtype="int64")
    for rank in range(world.size):
        segment.write_notify(rank, np.array([world.rank + 10 * rank]), 8 * world.rank, slot=world.rank)
    for rank in range(world.size):
        assert segment.notify_waitsome(rank, 1) == rank
    segment.wait()
    assert segment.local[:-1].tolist() == [rank + 10 * world.rank for rank in range(world.size)]
    segment.atomic_fetch_add(0, 8 * world.size, 1)
    weights = np.full(100_000, world.rank, "float32")
    under_way = world.broadcast(weights, root=2, wait=False)
    local_ranks = np.zeros(world.size, "int64")
    world.all_gather(local_ranks, np.array([world.local_rank]))
    under_way.wait()
    world.barrier()
    if world.rank == 0:
        print(segment.local.tolist(), weights[-1], local_ranks.tolist(), world.state())
    world.barrier()
"""


def shown(local_ranks: list[int]) -> str:
    return f"[0, 1, 2, 3] 2.0 {local_ranks} {['healthy'] * RANKS}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


@pytest.mark.timeout(PATIENCE)
def test_torchrun_starts_a_world(job: Path, device: str) -> None:
    done = torchrun(RANKS, str(job), cwd=job.parent, ZEROHOP_DEVICE=device)
    assert (done.returncode, done.stdout) == (0, shown([0, 1, 2])), done.stderr


@pytest.mark.timeout(PATIENCE)
def test_plain_variables_make_a_world(job: Path, device: str) -> None:
    meeting = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    variables = {**os.environ, "ZEROHOP_DEVICE": device, "OMP_NUM_THREADS": "1", **meeting}
    processes = [
        subprocess.Popen(
            [sys.executable, str(job)],
            env={**variables, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in reversed(range(RANKS))
    ]
    said = [process.communicate(timeout=patient(150)) for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, said
    assert said[-1][0] == shown([0, 0, 0])  # which nobody has told


# --- srun, of a real Slurm of this host ---


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    needs(commands=("srun", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"))
    with slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("meeting", ["a directory", "MASTER_ADDR and MASTER_PORT", "nowhere"])
def test_srun_starts_a_world(
    meeting: str, cluster: dict[str, str], job: Path, device: str, tmp_path: Path
) -> None:
    variables = {**cluster, "ZEROHOP_DEVICE": device}
    command = ["srun", "--ntasks", str(RANKS), sys.executable, str(job)]
    if meeting == "a directory":
        (tmp_path / "store").mkdir(mode=0o700)
        command.append(str(tmp_path / "store"))
    elif meeting != "nowhere":
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    done = run_ranks(command, tmp_path, **variables)
    if meeting == "nowhere":
        assert done.returncode != 0
        assert "set the rank of this process, but not where the ranks meet" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, shown([0, 1, 2])), done.stderr


# --- a store that is a server ---


@pytest.fixture
def redis(tmp_path: Path):
    """The path of a server's socket. Of Debian's packages redis-tools has the program, which looks at the name it is given."""
    needs(commands=("redis-check-rdb",), modules=("redis",))
    place = tmp_path / "redis"
    options = ["--port", "0", "--unixsocket", str(place), "--unixsocketperm", "700", "--save", ""]
    server = subprocess.Popen(
        ["redis-server", *options],
        executable="/usr/bin/redis-check-rdb",
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: place.exists() or server.poll() is not None, "the server listens")
        assert server.poll() is None
        yield place
    finally:
        server.terminate()
        server.wait()


def ring(link: Link, path: Path) -> list[str]:
    from redis import Redis

    store = Redis(unix_socket_path=str(path))
    if link.rank == 0:
        with (
            zh.World(store, 0, 2, timeout=0.3, name="alone") as world,
            pytest.raises(zh.TransferTimeout, match="that rank has not made its World"),
        ):
            world.peer(1)
    with zh.World(store, link.rank, link.size, timeout=TIMEOUT, name="ring") as world:
        segment = world.segment(8, dtype="int64")
        segment.write_notify((world.rank + 1) % world.size, segment.local + world.rank, 0, slot=0)
        segment.notify_waitsome(0, 1)
        segment.wait()
        assert segment.local[0] == (world.rank - 1) % world.size
        state = world.state()
        world.barrier()
        return state


def test_ranks_meet_in_redis(redis: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    with Ranks(ring, RANKS, redis) as ranks:
        assert ranks.results() == [["healthy"] * RANKS] * RANKS

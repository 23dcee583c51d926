"""Jobs that torchrun, srun or mpirun starts, or nobody, find themselves by World; and ranks that meet in Redis."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import zerohop as zh
from support.attempt import Attempt
from support.launchers import MPIS, PATIENCE, mpirun, needs, run_ranks, torchrun
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
def job(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


@pytest.mark.timeout(PATIENCE)
def test_torchrun_starts_a_world(job, device):
    done = torchrun(RANKS, str(job), cwd=job.parent, ZEROHOP_DEVICE=device)
    assert (done.returncode, done.stdout) == (0, shown([0, 1, 2])), done.stderr


@pytest.mark.timeout(PATIENCE)
def test_plain_variables_make_a_world(job, device):
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
    assert said[-1][0] == shown([0, 0, 0])  # which nobody has set


# --- srun, of a real Slurm of this host ---


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    needs(commands=("srun", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"))
    with slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("meeting", ["a directory", "MASTER_ADDR and MASTER_PORT", "nowhere"])
def test_srun_starts_a_world(meeting, cluster, job, device, tmp_path):
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
def redis(tmp_path):
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


def test_ranks_meet_in_redis(redis, monkeypatch):
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    with Ranks(ring, RANKS, redis) as ranks:
        assert ranks.results() == [["healthy"] * RANKS] * RANKS


# Of all four, of halves at the same time, of one that is no rank of the communicator.
JOB_OF_MPI = """
import os
import numpy as np
import zerohop as zh
from mpi4py import MPI

everyone = MPI.COMM_WORLD

def shared(world):
    found = np.empty(world.size, "int64")
    world.all_gather(found, np.array([everyone.rank]))
    world.barrier()
    return found.tolist()

with zh.World.from_env(timeout=30) as world:
    assert (world.rank, world.size) == (everyone.rank, everyone.size)
    assert world.local_rank == everyone.rank
    assert world.connected() == []  # until it is used
    segment = world.segment(8 * world.size, dtype="int64")
    for rank in range(world.size):
        segment.write_notify(rank, np.array([world.rank + 10 * rank]), 8 * world.rank, slot=world.rank)
    for rank in range(world.size):
        assert segment.notify_waitsome(rank, 1) == rank
    segment.wait()
    assert segment.local.tolist() == [rank + 10 * world.rank for rank in range(world.size)]
    said = shared(world)

half = everyone.Split(everyone.rank % 2)
with zh.World.from_mpi(half, name="half", timeout=30) as world:
    assert world.local_rank == everyone.rank  # as the launcher counts them
    said = said, shared(world)

some = everyone.Split(0 if everyone.rank else MPI.UNDEFINED)
if everyone.rank == 0:
    try:
        zh.World.from_mpi(some)
    except ValueError as error:
        said = *said, str(error).split(":")[0]
else:
    zh.World.from_mpi(some, name="some").close()

inter = half.Create_intercomm(0, everyone, 1 - everyone.rank % 2)
try:
    zh.World.from_mpi(inter)
except ValueError as error:
    said = *said, str(error).split(":")[0]
every = everyone.gather(said)
if everyone.rank == 0:
    print(every)
"""


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_of_a_communicator_make_a_world(mpi, device, tmp_path):
    path = tmp_path / "job.py"
    path.write_text(JOB_OF_MPI)
    done = mpirun(mpi, 4, tmp_path, "-W", "error", str(path), ZEROHOP_DEVICE=device)
    assert done.returncode == 0, done.stderr
    two = "comm is an intercommunicator"
    none = "comm is MPI.COMM_NULL"
    assert (
        done.stdout
        == f"""{
            [
                ([0, 1, 2, 3], [0, 2], none, two),
                ([0, 1, 2, 3], [1, 3], two),
                ([0, 1, 2, 3], [0, 2], two),
                ([0, 1, 2, 3], [1, 3], two),
            ]
        }\n"""
    )


# --- what fails: the ranks are threads ---


class Request:
    def __init__(self, barrier, fill):
        self._thread = threading.Thread(target=self._run, args=(barrier, fill), daemon=True)
        self._done = False
        self._thread.start()

    def _run(self, barrier, fill):
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            return
        fill()
        barrier.wait()
        self._done = True

    def Test(self):
        return self._done


class Communicator:
    """Of MPI, as far as it is used."""

    def __init__(self, size):
        self._size = size
        self._barrier = threading.Barrier(size, timeout=patient(20))
        self._given = [None] * size
        self.mine = threading.local()

    def Get_rank(self):
        return self.mine.rank

    def Get_size(self):
        return self._size

    def Is_inter(self):
        return False

    def Iallgather(self, sent, received):
        self._given[self.mine.rank] = sent

        def fill():
            received[:] = [int(given[0]) for given in self._given]

        return Request(self._barrier, fill)

    def Iallgatherv(self, sent, received):
        self._given[self.mine.rank] = sent
        every, (counts, begins) = received

        def fill():
            for given, count, begin in zip(self._given, counts, begins, strict=True):
                every[begin : begin + count] = given

        return Request(self._barrier, fill)


class MpiException(RuntimeError):
    pass


@pytest.fixture
def comm(monkeypatch):
    module = ModuleType("mpi4py.MPI")
    module.Exception = MpiException
    monkeypatch.setitem(sys.modules, "mpi4py", ModuleType("mpi4py"))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)
    return Communicator(2)


def made(comm, rank, **options):
    comm.mine.rank = rank
    return zh.World.from_mpi(comm, **{"device": "soft0", "timeout": TIMEOUT, **options})


def test_local_ranks_are_counted_where_no_launcher_says_them(comm):
    worlds = [attempt.value() for attempt in [Attempt(made, comm, rank) for rank in range(2)]]
    assert [world.local_rank for world in worlds] == [0, 1]
    assert [world.peer(1 - world.rank).alive for world in worlds] == [True, True]
    for world in worlds:
        world.close()


def test_an_error_of_mpi_is_named(comm, monkeypatch):
    def fails(self, sent, received):
        raise MpiException("MPI_ERR_PROC_FAILED: process failure")

    monkeypatch.setattr(Communicator, "Iallgather", fails)
    with pytest.raises(zh.Error, match="MPI_Iallgather on rank 0 of 2 failed: MPI_ERR_PROC_FAILED"):
        made(comm, 0)


def test_a_rank_alone_raises_in_time(comm):
    with pytest.raises(
        zh.TransferTimeout, match=r"not all 2 ranks .* in 0\.2 s: every rank has to"
    ):
        made(comm, 0, timeout=0.2)


def test_the_world_of_another_rank_cannot_be_made(comm):
    first = Attempt(made, comm, 0)
    second = Attempt(lambda: made(comm, 1, device="no such device"))
    with pytest.raises(zh.VerbsError):
        second.value()
    with pytest.raises(zh.Error, match="rank 1 of 2 could not make its World: VerbsError: "):
        first.value()


def test_another_mpi_than_that_of_mpirun_is_reported(comm, monkeypatch):
    sys.modules["mpi4py.MPI"].COMM_WORLD = comm
    sys.modules["mpi4py.MPI"].Get_library_version = lambda: "Open MPI v4.1.4, and so on\nmore"
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "3")
    with pytest.raises(zh.Error, match=r"started 3 ranks, .* with 2 ranks \(Open MPI v4\.1\.4, "):
        zh.World.from_env()

"""Where ranks find addresses: directories, dicts, PyTorch's stores; and launchers, by their variables."""

import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import zerohop as zh
from zerohop._endpoint.rails import launcher_local_rank
from zerohop._world.addresses import Addresses
from zerohop._world.launch import job_from_environment
from zerohop._world.store import Directory, open_store


class Shelf(dict[str, bytes]):
    """A dict as a store: get() raises KeyError."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def get(self, key: str) -> bytes:
        return self[key]


class Box(Shelf):
    """get() returns None for what is not there."""

    def get(self, key: str) -> Any:
        return dict.get(self, key)


def torch_store(_: Path) -> Any:
    import torch.distributed

    return torch.distributed.HashStore()


def torch_file(path: Path) -> Any:
    import torch.distributed

    return torch.distributed.FileStore(str(path / "file"), 2)


STORES = {
    "directory": str,
    "path": lambda path: path / "new" / "folder",
    "KeyError": lambda _: Shelf(),
    "None": lambda _: Box(),
    "torch": torch_store,
    "torch file": torch_file,
}
ADDRESS = bytes(range(256))


@pytest.fixture(params=STORES)
def ranks(request, tmp_path):
    store = open_store(STORES[request.param](tmp_path))
    return [Addresses(store, "with strange: letters/", rank, 4) for rank in range(4)]


def found(addresses: Addresses, rank: int, seconds: float) -> bytes:
    return addresses.wait(rank, time.monotonic() + seconds)[0].address


def test_an_address_comes_out_as_it_went_in(ranks):
    ranks[3].publish(ADDRESS, 1.0)
    ranks[1].publish(ADDRESS[1:], 1.0)
    assert found(ranks[1], 3, 5.0) == ADDRESS
    assert found(ranks[3], 1, 0.0) == ADDRESS[1:]
    assert found(ranks[3], 3, 0.0) == ADDRESS


def test_an_address_is_waited_for(ranks):
    with pytest.raises(zh.TransferTimeout, match="that rank has not made its World"):
        found(ranks[0], 3, 0.0)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        found(ranks[0], 3, 0.3)
    assert 0.25 < time.monotonic() - begin < 5
    later = threading.Timer(0.1, ranks[3].publish, (ADDRESS, 1.0))
    later.start()
    assert found(ranks[0], 3, 20.0) == ADDRESS
    later.join()


@pytest.mark.parametrize("store", ["KeyError", "torch", "directory"])
def test_ranks_compare_their_sizes(store, tmp_path):
    opened = open_store(STORES[store](tmp_path))
    four, two = Addresses(opened, "w", 0, 4), Addresses(opened, "w", 1, 2)
    four.publish(ADDRESS, 1.0)
    words = (
        r"World 'w' in .* has 2 ranks for rank 1, and 4 for rank 0 \(process \d+ on .*\): start all"
    )

    def meet() -> None:
        two.publish(ADDRESS, 1.0)  # a directory asks at once
        two.found(0, two.wait(0, 0.0)[0])  # others when the two meet

    with pytest.raises(ValueError, match=words):
        meet()


def test_files_are_for_this_user_alone(tmp_path, monkeypatch):
    directory = Directory(tmp_path / "job")
    directory.set("a/b", ADDRESS)
    [file] = directory.path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert directory.path.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="belongs to user"):
        directory.get("a/b")
    with pytest.raises(PermissionError, match="belongs to user"):
        directory.locks("lock")


def test_a_file_is_never_seen_in_part(tmp_path):
    directory, end = Directory(tmp_path), time.monotonic() + 0.5
    directory.set("key", bytes(10_000))

    def replace() -> None:
        while time.monotonic() < end:
            directory.set("key", bytes(10_000))

    writers = [threading.Thread(target=replace) for _ in range(2)]
    for writer in writers:
        writer.start()
    while time.monotonic() < end:
        assert len(directory.get("key")) == 10_000
    for writer in writers:
        writer.join()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_store_that_nobody_runs_ends_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    began = time.monotonic()
    with pytest.raises(zh.TransferTimeout, match=rf"MASTER_PORT={port} in 0.3 s .*rank 0"):
        job_from_environment(variables, 0.3)
    assert time.monotonic() - began < 5.0


def test_without_a_launcher_the_error_says_how():
    with pytest.raises(zh.Error, match=r"torchrun.*World\(directory, rank, size\)") as error:
        job_from_environment({"PATH": "/bin"})
    text = str(error.value)
    looked = ("RANK and WORLD_SIZE (torchrun)", "SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun)")
    for words in (*looked, "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "none is set: start it with"):
        assert words in text
    with pytest.raises(zh.Error, match="there is only RANK: start it with"):
        job_from_environment({"RANK": "0", "WORLD_SIZE": ""})


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"}
SRUN = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
TORCH = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


@pytest.mark.parametrize("variables", [OPEN_MPI, MPICH, SRUN, TORCH, {**SRUN, **OPEN_MPI}])
def test_every_launcher_is_understood(variables, tmp_path, monkeypatch):
    job = job_from_environment(variables, store=tmp_path)
    assert isinstance(job.store, Directory)
    assert (job.rank, job.size) == (5, 8)
    assert launcher_local_rank(default=7) == 7
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launcher_local_rank() == 1
    monkeypatch.setenv("ZEROHOP_LOCAL_RANK", "3")
    assert launcher_local_rank() == 3
    monkeypatch.setenv("ZEROHOP_LOCAL_RANK", "-1")
    with pytest.raises(ValueError, match="ZEROHOP_LOCAL_RANK='-1' is not a whole number"):
        launcher_local_rank()


def without(variables: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in variables.items() if key != name}


UNTOLD = [
    without(OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK"),
    without(MPICH, "MPI_LOCALRANKID"),
    without(SRUN, "SLURM_LOCALID"),
    without(TORCH, "LOCAL_RANK"),
]


@pytest.mark.parametrize("variables", UNTOLD)
def test_a_local_rank_that_nobody_tells_is_not_0(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launcher_local_rank(default=7) == 7
    assert launcher_local_rank() == 0


@pytest.mark.parametrize("variables", [UNTOLD[1], UNTOLD[3]])
def test_a_launcher_beneath_tells_the_local_rank(variables, monkeypatch):
    monkeypatch.setattr("zerohop._core.gpu_count", lambda: 8)
    for name, value in {**SRUN, "SLURM_LOCALID": "3", **variables}.items():
        monkeypatch.setenv(name, value)
    assert (launcher_local_rank(default=7), zh.local_gpu()) == (3, "cuda:3")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")  # one for each host, which starts the ranks
    assert launcher_local_rank(default=7) == 7


@pytest.mark.parametrize("variables", [OPEN_MPI, MPICH])
def test_ranks_of_mpi_meet_by_mpi(variables, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    assert job_from_environment(variables).store is None
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # for the program's own use
    assert job_from_environment(variables | meeting).store is None
    for name in list(variables)[:2]:
        with pytest.raises(zh.Error, match="no launcher has set the rank"):
            job_from_environment(without(variables, name))


def test_ranks_of_srun_learn_where_to_meet():
    """As its manual has the variables: not verified under a real Slurm."""
    with pytest.raises(zh.Error, match=r"srun has set .*World\.from_env\(store=directory\)"):
        job_from_environment(SRUN)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with pytest.raises(zh.TransferTimeout, match=f"MASTER_PORT={port}"):  # rank 0 runs the store
        job_from_environment(SRUN | meeting, 0.2)
    job = job_from_environment(SRUN | meeting | {"SLURM_PROCID": "0"}, 5.0)
    assert (job.rank, job.size) == (0, 8)
    job.store.set("key", b"value")
    assert job.store.get("key") == b"value"


def test_ranks_take_the_gpus_that_they_see_in_turn(tmp_path, monkeypatch):
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    for count, own, fifth in ((0, "cpu", "cpu"), (1, "cuda:0", "cuda:0"), (4, "cuda:1", "cuda:1")):
        monkeypatch.setattr("zerohop._core.gpu_count", lambda count=count: count)
        assert zh.local_gpu() == own
        assert zh.local_gpu(5) == fifth
    with zh.World(tmp_path, 0, 1, name="a", device="soft0") as world:
        assert (world.local_rank, world.gpu) == (1, "cuda:1")
    with zh.World(tmp_path, 0, 1, name="b", device="soft0", local_rank=6) as world:
        assert (world.local_rank, world.gpu) == (6, "cuda:2")


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_may_write_is_refused(tmp_path, mode):
    path = tmp_path / "a job"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(PermissionError, match=rf"mode is {mode:o}.*chmod go-w '.*a job'"):
        Directory(path)
    path.chmod(mode & ~0o022)
    Directory(path).set("key", b"1")

"""The programs of zerohop.examples that have two ranks, on the CPU: launchers, early ends, wrong usage."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from click.testing import CliRunner
from support.attempt import LOST_WITHIN, within
from support.examples import running
from support.launchers import MPIS, PATIENCE, mpirun, torchrun
from support.pairs import LONG, MAINS, SMALL, invoke, said
from zerohop.examples import place


@pytest.fixture(autouse=True)
def verbs(monkeypatch):
    """The device of all ranks, in whatever process they are."""
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


@pytest.fixture
def route(verbs, device, monkeypatch):
    """For cases in which it matters how bytes go."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)


# --- mpirun ---


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("name", MAINS)
def test_mpirun_starts_it(mpi, name, tmp_path):
    done = mpirun(mpi, 2, tmp_path, "-m", f"zerohop.examples.{name}", *SMALL[name], "--device=cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bit for bit") == 1


@pytest.mark.parametrize("prefix", ["OMPI_COMM_WORLD", "PMI"])
def test_without_mpi4py_mpirun_is_told_what_helps(monkeypatch, prefix):
    monkeypatch.setenv(f"{prefix}_RANK", "0")
    monkeypatch.setenv(f"{prefix}_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    done = invoke("osu")
    assert done.exit_code == 1
    assert "osu stopped: mpirun has started this process" in said(done)
    assert "pip install 'zerohop[mpi]'" in said(done)


# --- what ends it early ---


@pytest.mark.parametrize("name", MAINS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_both(route, name, rank):
    with running(name, *LONG[name], "--device=cpu") as job_:
        assert job_.line.startswith(f"{name}: ")
        assert len(job_.ranks) == 2
        os.kill(job_.ranks[rank], signal.SIGKILL)
        with within(LOST_WITHIN):
            status, errors = job_.end()
    assert status == 1
    assert f"{name} stopped: rank {rank} was killed by SIGKILL" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("name", MAINS)
def test_an_interruption_ends_both(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running(name, *LONG[name], "--device=cpu") as job_:
        assert job_.line.startswith(f"{name}: ")
        os.killpg(job_.process.pid, signal.SIGINT)
        with within(LOST_WITHIN):
            status, errors = job_.end()
    assert status == 130
    assert f"{name} was interrupted; its ranks have been ended" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []  # there were secrets


# --- wrong usage ---


def usage_error(name, *arguments):
    done = CliRunner().invoke(MAINS[name], arguments)
    assert done.exit_code == 2, done.output
    return said(done)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("kv_cache", ["--block-bytes=4098"], "4098 is no multiple of 4: use 4096 or 4100"),
        ("kv_cache", ["--block-bytes=2"], "2 is not in the range"),
        ("kv_cache", ["--requests=0"], "0 is not in the range"),
        ("kv_cache", ["--device=gpu"], "'gpu' is no device: --device cpu, or GPUs such as"),
        ("osu", ["-m", "8:4"], "'8:4' is no range of sizes: give [MIN:]MAX in bytes"),
        ("osu", ["-m", "0:4"], "'0:4' is no range of sizes"),
        ("osu", ["-m", "1K"], "'1K' is no range of sizes"),
        ("osu", ["--test=all"], "'all' is not one of 'latency', 'bw'"),
        ("osu", ["-i", "0"], "0 is not in the range"),
        ("kv_cache", ["--json=/nowhere/rows.json"], "'/nowhere' cannot be written to"),
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(name, arguments, words):
    assert words in usage_error(name, *arguments)


def test_a_cache_that_does_not_fit_is_refused():
    huge = ["--layers=1024", f"--blocks={1 << 20}", f"--block-bytes={1 << 26}", "--device=cpu"]
    assert "fewer --layers, fewer --blocks or smaller --block-bytes" in usage_error(
        "kv_cache", *huge
    )


@pytest.mark.parametrize("name", MAINS)
def test_gpus_without_one_or_without_pytorch_are_refused(name, monkeypatch):
    monkeypatch.setattr(place, "_gpu_count", lambda: 0)
    assert "this process sees no NVIDIA GPU" in usage_error(name, "--device=cuda:0")
    monkeypatch.setattr(place, "_gpu_count", lambda: 1)
    monkeypatch.setattr(place.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'zerohop[torch]'" in usage_error(name, "--device=cuda:0")


@pytest.mark.parametrize("name", MAINS)
def test_a_job_of_three_is_refused(name, monkeypatch):
    launched = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for variable, value in launched.items():
        monkeypatch.setenv(variable, value)
    assert f"{name} has two ranks, but this job was launched with 3" in usage_error(name)


# --- started by torchrun ---


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("name", MAINS)
def test_torchrun_starts_it(name):
    done = torchrun(2, "-m", f"zerohop.examples.{name}", *SMALL[name], "--device=cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bit for bit") == 1

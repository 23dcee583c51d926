"""The programs of zerohop.examples that have two ranks, on the CPU: what they tell, and what they do when something is wrong."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from support.attempt import LOST_WITHIN, within
from support.examples import example, rows_of, running
from support.patience import patient
from support.ranks import Job
from zerohop.examples import job, place
from zerohop.examples.kv_cache import cache as kv_cache_cache
from zerohop.examples.kv_cache import program as kv_cache
from zerohop.examples.kv_cache import rank as kv_cache_rank
from zerohop.examples.kv_cache.plan import Plan
from zerohop.examples.kv_cache.prefill import Prefill

MAINS = {"kv_cache": kv_cache.main}
SMALL = {"kv_cache": ["--requests=20", "--layers=3", "--blocks=40", "--block-bytes=100"]}
# So long that it is under way when the test does something to it.
LONG = {"kv_cache": ["--requests=100000000", "--layers=2", "--blocks=64", "--block-bytes=4096"]}


@pytest.fixture(autouse=True)
def verbs(monkeypatch):
    """The device of all ranks, in whatever process they are."""
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


@pytest.fixture
def route(verbs, device, monkeypatch):
    """For cases in which it matters how bytes go."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)


@pytest.fixture
def threads(tmp_path, monkeypatch):
    """The ranks are threads of this process, so that a case can spoil something."""

    def run(name, work, spec, ranks):
        in_threads = Job("thread", tmp_path / "job", "soft0")
        return in_threads(work, ranks, spec, lambda what, done, total: None)[0]

    monkeypatch.setattr(job, "run", run)


def invoke(name, *arguments):
    return CliRunner().invoke(MAINS[name], [*SMALL[name], "--device=cpu", *arguments])


def said(done):
    return " ".join(done.output.split())


# --- kv_cache ---


def test_every_block_is_right(route, tmp_path):
    file = tmp_path / "rows.json"
    shape = ["--requests=70", "--layers=5", "--blocks=100", "--block-bytes=1000"]
    done = example("kv_cache", *shape, "--device=cpu", f"--json={file}")
    assert done.returncode == 0, done.stderr
    assert "Every block is what prefill computed, bit for bit." in done.stdout
    rows = rows_of(file)
    of = {metric: rows["5 x 100", "host", metric] for metric in ("requests", "rate", "p50", "p99")}
    plan = Plan(70, 5, 100, 1000)
    nbytes = sum(plan.nbytes(request) for lap in plan.laps() for request in lap)
    assert of["rate"] / of["requests"] == pytest.approx(nbytes / 70)
    assert 0 < of["p50"] <= of["p99"]
    assert rows["5 x 100", "host", "wrong"] == 0


def test_one_block_for_each_request_is_enough():
    done = example("kv_cache", "--requests=9", "--layers=1", "--blocks=1", "--block-bytes=4")
    assert done.returncode == 0, done.stderr


def test_laps_have_all_requests_and_each_block_once():
    plan = Plan(100, 3, 64, 8)
    laps = list(plan.laps())
    assert [request.number for lap in laps for request in lap] == list(range(100))
    assert len(laps) > 2
    for lap in laps:
        wanted = np.concatenate([request.wanted for request in lap])
        assert len(set(wanted.tolist())) == len(wanted)
        assert wanted.max() < 64
    for request in itertools.chain(*laps):
        assert 1 <= len(request.computed) == len(request.wanted) <= plan.longest == 4
        assert request.computed.tolist() == plan.table(request.number).tolist()


def test_rows_of_a_cache_have_no_word_in_common_with_each_other():
    words = kv_cache_cache.computed(np.arange(200), 50)
    for column in words.T:
        assert len(set(column.tolist())) == 200
    for row in words:
        assert len(set(row.tolist())) == 50


@pytest.mark.parametrize("name", MAINS)
def test_what_is_not_spoilt_is_right(threads, name):
    done = invoke(name)
    assert done.exit_code == 0, done.output


class Spoiler:
    """A Peer whose tenth write of pages is spoilt: eight come before it counts."""

    def __init__(self, peer, spoil):
        self._peer, self._spoil = peer, spoil
        self._count = itertools.count(1)

    def recv(self, *arguments, **options):
        return self._peer.recv(*arguments, **options)

    def write_pages(self, here, there, rows, wanted, notify):
        if next(self._count) == 10:
            rows, wanted, notify = self._spoil(rows, wanted, notify)
        return self._peer.write_pages(here, there, rows, wanted, notify=notify)


@pytest.fixture
def spoilt(threads, monkeypatch):
    """Makes the prefill side write something else."""

    def by(spoil):
        monkeypatch.setattr(
            kv_cache_rank,
            "Prefill",
            lambda decode, plan, here, there: Prefill(Spoiler(decode, spoil), plan, here, there),
        )

    return by


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows, wanted, notify: ((rows + 1) % 120, wanted, notify),
        lambda rows, wanted, notify: (rows[:-1], wanted[:-1], notify),
        lambda rows, wanted, notify: (rows, (wanted + 40) % 120, notify),
    ],
    ids=["another block", "one is missing", "another layer"],
)
def test_one_wrong_block_is_noticed(spoilt, spoil):
    spoilt(spoil)
    done = invoke("kv_cache")
    assert done.exit_code == 1, done.output
    assert "WRONG, 1 of 20 requests; the first is word 0 of block " in said(done)
    assert "bit for bit" not in said(done)


def test_a_notification_of_another_request_is_noticed(spoilt):
    spoilt(lambda rows, wanted, notify: (rows, wanted, (notify[0], notify[1] + 3)))
    done = invoke("kv_cache")
    assert "is due" in str(done.exception)


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


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", MAINS)
def test_torchrun_starts_it(name):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    done = subprocess.run(
        [sys.executable, *launcher, f"zerohop.examples.{name}", *SMALL[name], "--device=cpu"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=patient(150),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bit for bit") == 1

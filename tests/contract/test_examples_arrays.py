"""The programs of zerohop.examples about arrays and frameworks, on the CPU: results, and that what is wrong is noticed."""

from __future__ import annotations

import itertools
import os
import signal
import threading

import numpy as np
import pytest
import zerohop as zh
from click.testing import CliRunner
from support.arrays_examples import MAINS, RIGHT, SMALL, invoke, said
from support.attempt import LOST_WITHIN, Attempt, within
from support.examples import example, rows_of, running
from support.launchers import PATIENCE, mpirun
from support.patience import patient
from support.ranks import TIMEOUT, results
from zerohop.examples import command, job, place
from zerohop.examples.halo import rank as halo_rank
from zerohop.examples.halo.exchange import Exchange
from zerohop.examples.halo.plan import Plan as HaloPlan
from zerohop.examples.jax_handoff import rank as jax_rank
from zerohop.examples.numpy_only import program as numpy_only
from zerohop.examples.weights import model as weights_model
from zerohop.examples.weights import reader as weights_reader
from zerohop.examples.weights.plan import Plan
from zerohop.examples.weights.trainer import Reading, Trainer


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

    def run(name, work, spec, ranks, expendable=()):
        def rank(number):  # without a barrier at the end: the trainer of weights leaves last
            with zh.World(tmp_path / "job", number, ranks, timeout=TIMEOUT) as world:
                return work(world, spec, lambda what, done, total: None)

        return results([Attempt(rank, number) for number in range(ranks)])[0]

    monkeypatch.setattr(job, "run", run)
    # Of a rank, what is as long as the process lasts.
    monkeypatch.setattr(weights_model, "has_torch", lambda: False)


@pytest.mark.parametrize("name", MAINS)
def test_what_is_not_spoilt_is_right(threads, name):
    done = invoke(name)
    assert done.exit_code == 0, done.output
    assert RIGHT[name].format(readers=3) in said(done)


# --- weights ---


def test_readers_go_on_without_one_that_is_killed(route, tmp_path):
    file = tmp_path / "rows.json"
    shape = ["--layers=4", "--width=33", "--versions=9", "--device=cpu"]
    done = example("weights", *shape, "--ranks=4", "--kill=2", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert RIGHT["weights"].format(readers=2) in done.stdout
    assert done.stdout.count("LOST, ") == 1
    assert "LOST, rank 2 at version 5 (peer 'rank 2 of world " in done.stdout
    rows = rows_of(file)
    of = {metric: rows["4 x 33", "host", metric] for metric in ("versions", "rate", "p50", "p99")}
    assert of["rate"] == pytest.approx(of["versions"] * 2 * 4 * 33 * 34 * 4)
    assert 0 < of["p50"] <= of["p99"]
    assert (rows["4 x 33", "host", "wrong"], rows["4 x 33", "host", "lost"]) == (0, 1)


LONG = ["--layers=2", "--width=300", "--versions=10000", "--device=cpu", "--ranks=2"]


@pytest.mark.parametrize(
    ("rank", "words"),
    [(0, "rank 0 was killed by SIGKILL"), (1, "all readers are lost: rank 1, at version ")],
)
def test_without_a_trainer_or_readers_it_ends(rank, words):
    with running("weights", *LONG) as job_:
        assert job_.line.startswith("weights: versions, ")
        os.kill(job_.ranks[rank], signal.SIGKILL)
        with within(LOST_WITHIN):
            status, errors = job_.end()
    assert status == 1
    assert "weights stopped: " in errors
    assert words in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("framework", ["NumPy", "PyTorch"])
def test_models_are_those_of_the_reference(monkeypatch, framework):
    monkeypatch.setattr(weights_model, "has_torch", lambda: framework == "PyTorch")
    plan = Plan(3, 9, 400)
    model = weights_model.model_of(plan, "cpu")
    assert model.framework == framework
    for version, right in enumerate(plan.reference(), 1):
        model.step(plan.gradients(version))
        flat = np.concatenate([np.asarray(each) for each in model.parameters])
        assert (flat.view(np.uint32) == right.view(np.uint32)).all()
    assert np.unique(right).size > 100


def test_the_next_version_comes_while_one_is_in_use(threads, monkeypatch):
    """And the one behind that only when the reader has gone over to the next."""
    begun, there = [0], threading.Condition()
    push, differing = Trainer._push, weights_reader.differing

    def pushed(self, version):
        with there:
            begun[0] = version
        push(self, version)
        with there:
            there.notify_all()

    def in_use(found, right, plan):
        before = found.copy()
        version = in_use.version = in_use.version + 1
        if version < 7:
            with there:
                assert there.wait_for(lambda: begun[0] > version, patient(20))
        assert begun[0] == min(version + 1, 7)
        assert (before == found).all()
        return differing(found, right, plan)

    in_use.version = 0
    monkeypatch.setattr(Trainer, "_push", pushed)
    monkeypatch.setattr(weights_reader, "differing", in_use)
    done = invoke("weights", "--ranks=2")
    assert done.exit_code == 0, (done.output, done.exception)


def test_half_a_version_is_noticed(threads, monkeypatch):
    """Of version 3 one reader gets all but a matrix."""
    write = Reading.write

    def without_one(self, version):
        sources = self._sources
        if (version, self.rank) == (3, 2):
            self._sources, parts = sources[:2] + sources[3:], self.parts[1]
            self.parts[1] = parts[:2] + parts[3:]
        try:
            return write(self, version)
        finally:
            if self._sources is not sources:
                self._sources, self.parts[1] = sources, parts

    monkeypatch.setattr(Reading, "write", without_one)
    done = invoke("weights")
    assert done.exit_code == 1, done.output
    assert "WRONG, version 3 at rank 2: element " in said(done)
    assert "of parameter 2 is " in said(done)
    assert done.output.count("WRONG") == 1
    assert "bit for bit" not in said(done)


def test_a_notification_of_another_version_is_noticed(threads, monkeypatch):
    def write(self, version):
        number = version % 2
        wrong = 2 * ((version, self.rank) == (4, 2))
        pairs = list(zip(self._sources, self.parts[number], strict=True))
        return self.peer.write_many(pairs, notify=(number, version + wrong))

    monkeypatch.setattr(Reading, "write", write)
    assert "got version 6 where 4 is due" in str(invoke("weights").exception)


# --- halo ---


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_cell_is_right(route, tmp_path, ranks):
    file = tmp_path / "rows.json"
    done = example("halo", *SMALL["halo"], f"--ranks={ranks}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert RIGHT["halo"] in done.stdout
    rows = rows_of(file)
    assert rows["37 x 11", "host", "steps"] > 0
    assert rows["37 x 11", "host", "wrong"] == 0


def test_columns_have_a_rank_each():
    plan = HaloPlan(5, 11, 1, 4)
    columns = [column for rank in range(4) for column in range(11)[plan.columns_of(rank)]]
    assert columns == list(range(11))
    assert [plan.shape(rank)[2] - 2 for rank in range(4)] == [2, 3, 3, 3]


def test_one_wrong_cell_is_noticed(threads, monkeypatch):
    calls, right = itertools.count(1), halo_rank.step_inside

    def step(xp, source, target, around):
        right(xp, source, target, around)
        if next(calls) == 2 * 2 + 2 * 25:  # of the last step
            target[5, 3] += 0.01

    monkeypatch.setattr(halo_rank, "step_inside", step)
    done = invoke("halo")
    assert done.exit_code == 1
    assert "WRONG, cell 4, " in said(done)
    assert "of 407 cells 1 are wrong" in said(done)


def test_a_halo_that_is_not_written_is_noticed(threads, monkeypatch):
    write = Exchange._write

    def other_column(self, side, step):
        if step != 20 or side.edge != 1:
            return write(self, side, step)
        return side.peer.notify(side.slot_there + step % 2, step)

    monkeypatch.setattr(Exchange, "_write", other_column)
    done = invoke("halo")
    assert done.exit_code == 1, done.output
    assert "WRONG, cell " in said(done)


def test_a_halo_of_another_step_is_noticed(threads, monkeypatch):
    monkeypatch.setattr(
        Exchange,
        "_write",
        lambda self, side, step: side.peer.notify(side.slot_there + step % 2, step + 2),
    )
    assert "got the halo of step 3 where that of step 1 is due" in str(invoke("halo").exception)


# --- jax_handoff ---


def test_jax_reads_in_place_what_was_written(tmp_path):
    file = tmp_path / "rows.json"
    done = example("jax_handoff", *SMALL["jax_handoff"], f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert RIGHT["jax_handoff"] in done.stdout
    rows = rows_of(file)
    for dtype in ("float32", "bfloat16", "float16", "int8"):
        assert rows[dtype, "host", "in place"] == 2
        assert rows[dtype, "host", "wrong"] == 0


def test_a_copy_is_told(threads, monkeypatch, tmp_path):
    def copied(self, memory):
        return self.numpy.array(self.jax.dlpack.from_dlpack(memory), copy=True)

    monkeypatch.setattr(jax_rank.Jax, "array", copied)
    file = tmp_path / "rows.json"
    assert invoke("jax_handoff", f"--json={file}").exit_code == 0
    assert rows_of(file)["bfloat16", "host", "in place"] == 0


def test_one_wrong_element_is_noticed(threads, monkeypatch):
    compute = jax_rank.Jax.compute

    def spoilt(self, spec, dtype, round_):
        array = compute(self, spec, dtype, round_)
        return array.at[3, 7].add(1) if (dtype, round_) == ("bfloat16", 1) else array

    monkeypatch.setattr(jax_rank.Jax, "compute", spoilt)
    done = invoke("jax_handoff")
    assert done.exit_code == 1
    assert "WRONG, array 2 of bfloat16: element 3, 7 is " in said(done)
    assert "of 600 elements 1 are wrong" in said(done)


# --- numpy_only ---


def test_one_wrong_number_is_noticed(threads, monkeypatch):
    squares = numpy_only.squares
    calls = itertools.count(1)

    def spoilt(rank, count):
        made = squares(rank, count)
        made[17] += next(calls) == 1  # of the first that writes
        return made

    monkeypatch.setattr(numpy_only, "squares", spoilt)
    done = invoke("numpy_only", "--ranks=3")
    assert done.exit_code == 1
    assert ": element 17 is " in done.output
    assert done.output.count("WRONG") == 1
    assert "Every number" not in done.output


# --- wrong usage, and a launcher ---


def usage_error(name, *arguments):
    done = CliRunner().invoke(MAINS[name], arguments)
    assert done.exit_code == 2, done.output
    return said(done)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("weights", ["--ranks=1"], "a trainer and a reader are two ranks at least"),
        ("weights", ["--kill=1", "--ranks=2"], "of three ranks at least"),
        ("weights", ["--kill=4"], "--kill 4 of 4 ranks: name one from 1 to 3"),
        ("weights", ["--width=16384", "--layers=1024"], "free: fewer --layers or --width"),
        ("halo", ["--columns=2", "--ranks=3"], "--columns 2 are less than one for each of 3 ranks"),
        ("halo", ["--device=gpu"], "'gpu' is no device: --device cpu, or GPUs such as"),
        ("jax_handoff", ["--rounds=0"], "0 is not in the range"),
        ("numpy_only", ["--count=0"], "0 is not in the range"),
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(name, arguments, words):
    assert words in usage_error(name, *arguments)


def test_frameworks_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr(place, "_gpu_count", lambda: 1)
    find = place.importlib.util.find_spec
    missing = {"torch", "cupy", "jax_cuda13_plugin", "jax_cuda12_plugin"}
    monkeypatch.setattr(
        place.importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    assert "pip install 'zerohop[torch]'" in usage_error("weights", "--device=cuda:0")
    assert "pip install 'zerohop[cupy]'" in usage_error("halo", "--device=cuda:0")
    assert "pip install 'jax[cuda13]'" in usage_error("jax_handoff", "--device=cuda:0")
    missing.add("jax")
    assert "pip install 'zerohop[jax]'" in usage_error("jax_handoff")
    assert command.where(None, "jax") == ("cpu",)


def test_a_launcher_would_end_all(monkeypatch):
    launched = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for variable, value in launched.items():
        monkeypatch.setenv(variable, value)
    assert "--kill is for ranks that this program starts" in usage_error("weights", "--kill=1")


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize(("name", "mpi"), [("halo", "openmpi"), ("numpy_only", "mpich")])
def test_mpirun_starts_it(name, mpi, tmp_path):
    done = mpirun(mpi, 3, tmp_path, "-m", f"zerohop.examples.{name}", *SMALL[name])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(RIGHT[name]) == 1

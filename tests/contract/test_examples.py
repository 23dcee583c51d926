"""The programs of zerohop.examples on the CPU: their results, and what they do when something is wrong."""

from __future__ import annotations

import importlib
import itertools
import os
import signal

import pytest
from click.testing import CliRunner
from support.attempt import LOST_WITHIN, within
from support.examples import example, ranks_of, rows_of, running, started
from support.launchers import PATIENCE, torchrun
from support.link import until
from support.patience import patient
from support.ranks import Job
from zerohop.examples import command, job, place
from zerohop.examples.matvec import host as matvec_host
from zerohop.examples.matvec import plan as matvec_plan
from zerohop.examples.matvec import program as matvec
from zerohop.examples.start import start
from zerohop.examples.stencil import host as stencil_host
from zerohop.examples.stencil import program as stencil

MAINS = {"matvec": matvec.main, "stencil": stencil.main}
SMALL = {"matvec": ["--batch", "40", "--rounds", "3"], "stencil": ["--side", "40", "--steps", "7"]}
# So long that it is under way when the test does something to it.
LONG = {
    "matvec": ["--batch", "480", "--rounds", "10000000"],
    "stencil": ["--side", "300", "--steps", "10000000"],
}


@pytest.fixture(autouse=True)
def verbs(monkeypatch):
    """The device of all ranks, in whatever process they are."""
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


@pytest.fixture
def route(verbs, device, monkeypatch):
    """For cases in which it matters how bytes go."""
    monkeypatch.setenv("ZEROHOP_DEVICE", device)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_product_is_right(route, tmp_path, ranks):
    sizes = [
        "--batch=480",
        "--batch=37",
        "--batch=480",
    ]  # and one that no number of servers divides
    file = tmp_path / "rows.json"
    arguments = [*sizes, "--rounds", "7", f"--ranks={ranks}", "--device=cpu", f"--json={file}"]
    done = example("matvec", *arguments)
    assert done.returncode == 0, done.stderr
    assert "Every product is that of the reference, bit for bit." in done.stdout
    rows = rows_of(file)
    for size in (480, 37):
        of = {metric: rows[f"batch {size}", "host", metric] for metric in ("batches", "products")}
        assert of["products"] == pytest.approx(of["batches"] * size)
        assert rows[f"batch {size}", "host", "p50"] > 0
        assert rows[f"batch {size}", "host", "wrong"] == 0


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_cell_is_right(route, tmp_path, ranks):
    file = tmp_path / "rows.json"
    shape = ["--side", "67", "--steps", "25"]
    done = example("stencil", *shape, f"--ranks={ranks}", "--device=cpu", f"--json={file}")
    assert done.returncode == 0, done.stderr
    assert "Every cell is that of the reference, bit for bit." in done.stdout
    rows = rows_of(file)
    assert rows["67 x 67", "host", "steps"] > 0
    assert rows["67 x 67", "host", "wrong"] == 0


def test_ranks_of_two_rows_are_enough():
    done = example("stencil", "--side=6", "--steps=9", "--ranks=3", "--device=cpu")
    assert done.returncode == 0, done.stderr


# --- a wrong result is noticed: the ranks are threads of this process, so that a case can spoil one ---


@pytest.fixture
def threads(tmp_path, monkeypatch):
    def run(name, work, spec, ranks):
        in_threads = Job("thread", tmp_path / "job", "soft0")
        return in_threads(work, ranks, spec, lambda what, done, total: None)[0]

    monkeypatch.setattr(job, "run", run)


def invoke(name, *arguments):
    return CliRunner().invoke(MAINS[name], [*SMALL[name], "--device=cpu", *arguments])


@pytest.mark.parametrize("name", MAINS)
def test_what_is_not_spoilt_is_right(threads, name):
    assert invoke(name).exit_code == 0


@pytest.mark.parametrize("lap", [2, 5])
def test_products_of_several_laps_take_the_same_places(threads, monkeypatch, lap):
    monkeypatch.setattr(matvec_plan, "_PRODUCTS_NBYTES", lap * 40 * 128)
    calls, right = itertools.count(0), matvec_host.multiply

    def multiply(matrices, vectors, products):
        if next(calls) != 24:  # whose answer then is that of another batch
            right(matrices, vectors, products)

    assert invoke("matvec").exit_code == 0
    monkeypatch.setattr(matvec_host, "multiply", multiply)
    done = invoke("matvec")
    assert done.exit_code == 1
    assert "1 of 26 batches; the first is batch 24: " in " ".join(done.output.split())


@pytest.mark.parametrize(("call", "batch"), [(1, 0), (20, 19), (24, 23)])
def test_one_wrong_product_is_noticed(threads, monkeypatch, call, batch):
    calls, right = itertools.count(1), matvec_host.multiply

    def multiply(matrices, vectors, products):
        right(matrices, vectors, products)
        if next(calls) == call:
            products[11, 5] += 0.5

    monkeypatch.setattr(matvec_host, "multiply", multiply)
    done = invoke("matvec")
    assert done.exit_code == 1
    assert f"batch {batch}: element 5 of the product of vector 11 is" in done.output
    assert "1 of 26 batches" in done.output
    assert "of 1280 elements 1 are wrong" in done.output
    assert "bit for bit" not in done.output


def test_an_answer_to_another_batch_is_noticed(threads, monkeypatch):
    """Two buffers are mixed up."""
    right = matvec_host.multiply
    seen = {}

    def multiply(matrices, vectors, products):
        before = seen.get("vectors")
        seen["vectors"] = vectors.copy()
        right(matrices, vectors if before is None else before, products)

    monkeypatch.setattr(matvec_host, "multiply", multiply)
    done = invoke("matvec")
    assert done.exit_code == 1
    assert "batch 1: element" in done.output


def test_one_wrong_cell_is_noticed(threads, monkeypatch):
    calls, right = itertools.count(1), stencil_host.step_rows

    def step_rows(source, target, first, end):
        right(source, target, first, end)
        if next(calls) == 40:
            target[first, 20] += 0.01

    monkeypatch.setattr(stencil_host, "step_rows", step_rows)
    done = invoke("stencil")
    assert done.exit_code == 1
    assert "WRONG, by host: cell" in done.output
    assert "bit for bit" not in done.output


def test_a_halo_of_another_step_is_noticed(threads, monkeypatch):
    right = stencil_host._HostStepper.post

    def post(self, step, stream=None):
        right(self, step + 2 if (self.world.rank, step) == (1, 3) else step, stream)

    monkeypatch.setattr(stencil_host._HostStepper, "post", post)
    done = invoke("stencil")
    assert "got the halo of step 5 where that of step 3 is due" in str(done.exception)


# --- what ends it early ---


@pytest.mark.parametrize("name", MAINS)
def test_a_killed_rank_ends_all(route, name):
    with running(name, *LONG[name], "--ranks=3", "--device=cpu") as job_:
        assert job_.line.startswith(f"{name}: ")
        assert len(job_.ranks) == 3
        os.kill(job_.ranks[2], signal.SIGKILL)
        with within(LOST_WITHIN):
            status, errors = job_.end()
    assert status == 1
    assert f"{name} stopped: rank 2 was killed by SIGKILL" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("name", "number"),
    [("matvec", signal.SIGINT), ("stencil", signal.SIGINT), ("stencil", signal.SIGTERM)],
)
def test_an_interruption_ends_all(tmp_path, monkeypatch, name, number):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running(name, *LONG[name], "--device=cpu") as job_:
        assert job_.line.startswith(f"{name}: ")
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("zerohop-")]
        if number == signal.SIGINT:  # as a shell sends it
            os.killpg(job_.process.pid, number)
        else:
            job_.process.send_signal(number)
        with within(LOST_WITHIN):
            status, errors = job_.end()
    assert status == 130
    assert f"{name} was interrupted; its ranks have been ended" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []  # there were secrets


def is_quiet(errors):
    return "Traceback" not in errors and "Error" not in errors


@pytest.mark.parametrize("name", MAINS)
def test_ranks_whose_parent_is_killed_end_in_silence(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running(name, *LONG[name], "--device=cpu") as job_:
        job_.process.kill()
        with within(2 * LOST_WITHIN):
            _, errors = job_.end()
    assert is_quiet(errors), errors


@pytest.mark.parametrize("name", MAINS)
def test_an_interruption_while_ranks_start_ends_all(tmp_path, monkeypatch, name):
    """As soon as there is a process of them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started(name, *LONG[name], "--device=cpu") as process:
        until(lambda: ranks_of(process.pid), "a rank has been started")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=patient(20))
    assert process.returncode == 130
    assert errors == f"{name} was interrupted; its ranks have been ended\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_before_that_is_told(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as end:
        start("matvec")
    assert end.value.code == 130
    assert capsys.readouterr().err == "matvec was interrupted before it began\n"


# --- wrong usage ---


def usage_error(name, *arguments):
    done = CliRunner().invoke(MAINS[name], arguments)
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("matvec", ["--ranks=1"], "a client and a server are two ranks at least"),
        ("matvec", ["--batch=2", "--ranks=5"], "--batch 2 is too small for 4 servers"),
        ("matvec", ["--batch=0"], "'0' is no number of vectors from 1 to 65536"),
        ("matvec", ["--batch=480,960"], "once for each size, as --batch 480 --batch 960"),
        ("stencil", ["--device=cpu,cuda:1"], "or all on GPUs: --device cpu, or --device cuda:1"),
        ("matvec", ["--device=cpu,cpu"], "--device cpu, or --device cuda:0"),
        ("stencil", ["--side=7", "--ranks=4"], "--side 7 is less than 2 rows for each of 4 ranks"),
        ("matvec", ["--json=/nowhere/rows.json"], "'/nowhere' cannot be written to"),
        ("stencil", ["--steps=0"], "0 is not in the range"),
        ("stencil", ["--device=gpu"], "'gpu' is no device: --device cpu, or GPUs such as"),
        ("stencil", ["--device=cuda:"], "'cuda:' is no device"),
        ("stencil", ["--by=both", "--device=cpu"], "--by both runs kernels, which takes a GPU"),
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(name, arguments, words):
    assert words in usage_error(name, *arguments)


@pytest.mark.parametrize("name", MAINS)
def test_kernels_without_a_gpu_or_cupy_are_refused(name, monkeypatch):
    monkeypatch.setattr(place, "_gpu_count", lambda: 0)
    for arguments in (["--by=kernel"], ["--by=kernel", "--device=cuda:0"]):
        assert "this process sees no NVIDIA GPU" in usage_error(name, *arguments)
    monkeypatch.setattr(place, "_gpu_count", lambda: 1)
    monkeypatch.setattr(place.importlib.util, "find_spec", lambda name: None)
    for arguments in (["--by=kernel"], ["--device=cuda:0"]):
        assert "pip install 'zerohop[cupy]'" in usage_error(name, *arguments)
    monkeypatch.setattr(place.importlib.util, "find_spec", lambda name: object())
    assert "from cuda:0 on" in usage_error(name, "--device=cuda:0,cuda:1")
    assert "name it: --device cuda:0" in usage_error(name, "--by=kernel", "--device=cpu")


def test_devices_and_ways_are_chosen_by_what_is_there(monkeypatch):
    monkeypatch.setattr(place, "_gpu_count", lambda: 2)
    monkeypatch.setattr(place.importlib.util, "find_spec", lambda name: object())
    both = ("host", "kernel")
    assert command.where_and_how(None, None) == (("cuda:0", "cuda:1"), both)
    assert command.where_and_how("cuda:1", "both") == (("cuda:1",), both)
    assert command.where_and_how(None, "kernel") == (("cuda:0", "cuda:1"), ("kernel",))
    assert command.where_and_how("cpu", None) == (("cpu",), ("host",))
    monkeypatch.setattr(place, "_gpu_count", lambda: 0)
    assert command.where_and_how(None, None) == (("cpu",), ("host",))


# --- started by torchrun ---


def test_ranks_are_those_of_the_launcher(monkeypatch):
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert command.ranks_of(None) == command.ranks_of(3) == 3
    assert "this job was launched with 3" in usage_error("stencil", "--ranks=2")


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("name", MAINS)
def test_torchrun_starts_it(name):
    done = torchrun(2, "-m", f"zerohop.examples.{name}", *SMALL[name], "--device=cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bit for bit") == 1

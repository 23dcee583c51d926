"""The programs of zerohop.examples on the CPU, as their users run them: each checks its own result, and notices what is wrong."""

import re
from pathlib import Path

import pytest
import zerohop.examples
from support.launchers import PATIENCE, mpirun, needs, torchrun
from support.nvcc import compiles
from support.program import example, run_python

FOLDER = Path(zerohop.examples.__file__).parent
FILES = [path for path in sorted(FOLDER.iterdir()) if path.suffix in (".py", ".cu")]
MOST_LINES = 120  # of a program that is to be copied

# By the name: arguments with which it is short; what it says at its end; and a piece of it, with what makes its result wrong.
CASES = {
    "numpy_only": (
        "--count=100",
        "numbers of rank 0 are right",
        ("write(squares(world.rank, count)", "write(squares(world.rank, count) + 1"),
    ),
    "cg": (
        "--points=203",
        "No residual is larger than 1e-08.",
        ("x += length * direction", "x += 1.01 * length * direction"),
    ),
    "halo": (
        "--rows=37 --columns=11 --steps=25",
        "Every cell equals that of a single process, bit for bit.",
        ("there[parity, :, halo]", "there[1 - parity, :, halo]"),
    ),
    "stencil": (
        "--side=66 --steps=25",
        "Every cell equals that of a single process, bit for bit.",
        ("for each in (row, halo)", "for each in (row + 1, halo)"),
    ),
    "matvec": (
        "--batch=37 --rounds=9",
        "Every product equals NumPy's, bit for bit.",
        ("(1, number % SETS * nbytes", "(1, number % 2 * nbytes"),
    ),
    "kv_cache": (
        "--layers=3 --blocks=100 --block-bytes=100",
        "Every block equals the one that prefill computed, bit for bit.",
        ("(cache, there, computed, ", "(cache, there, computed[::-1].copy(), "),
    ),
    "weights": (
        "--layers=3 --width=10 --versions=7",
        "readers equals the trainer's, bit for bit.",
        ("write_many(pairs,", "write_many(pairs[1:],"),
    ),
    "jax_handoff": (
        "--rows=20 --columns=30 --rounds=2",
        "Every element equals the reference, bit for bit, and JAX reads it in place.",
        ("values(cells, round_).astype(dtype)", "values(cells, round_ + 1).astype(dtype)"),
    ),
    "osu": (
        "-m 300 -i 5",
        "# All data arrived as sent, bit for bit.",
        ("= mine, ~right", "= ~mine, ~right"),
    ),
}
BY_TORCHRUN = {
    "ddp": (
        "--steps=3",
        "The loss of 2 ranks equals that of one process",
        ("= batch(rank)", "= batch(0)"),
    ),
    "fsdp2": (
        "--steps=3",
        "The loss of 2 ranks equals that of one process",
        ("batch(rank), steps", "batch(0), steps"),
    ),
    "dtensor": (
        "--rows=3",
        "The product on 2 ranks equals that of one process",
        ("(mesh, [Replicate()])", "(mesh, [Replicate()]) + rank"),
    ),
}
TWO_RANKS = {"matvec", "kv_cache", "jax_handoff", "osu"}


@pytest.fixture(autouse=True)
def verbs(monkeypatch):
    """The device of all ranks, in whatever process they are."""
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


@pytest.mark.parametrize(
    ("name", "p2p"), [*((name, "1") for name in CASES), ("halo", "0"), ("osu", "0")]
)
def test_its_result_is_right(monkeypatch, name, p2p):
    monkeypatch.setenv("ZEROHOP_P2P", p2p)
    arguments, words, _ = CASES[name]
    ranks = [] if name in TWO_RANKS else ["--ranks=3"]
    done = example(name, *arguments.split(), *ranks)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(words) == 1
    if name not in ("cg", "stencil"):  # which do not say how their arrays go
        assert ("p2p over cpu" in done.stdout) == (p2p == "1")


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_result_is_noticed(name, tmp_path):
    """Of a copy of the file, as a user has one."""
    arguments, words, (right, wrong) = CASES[name]
    text = (FOLDER / f"{name}.py").read_text()
    assert text.count(right) == 1
    file = tmp_path / f"my_{name}.py"
    file.write_text(text.replace(right, wrong))
    done = run_python(file, *arguments.split())
    assert done.returncode != 0
    assert "WRONG: " in done.stderr or "Arrays are not equal" in done.stderr
    assert words not in done.stdout


@pytest.mark.parametrize("name", ["cg", "halo", "stencil", "numpy_only"])
def test_one_rank_is_enough(name):
    arguments, words, _ = CASES[name]
    done = example(name, *arguments.split(), "--ranks=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout


def test_readers_go_on_without_one_that_dies():
    shape = ["--layers=2", "--width=33", "--versions=9"]
    done = example("weights", *shape, "--ranks=4", "--kill=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("LOST: reader 2 at version 6: peer 'rank 2 of world ") == 1
    assert "Every version at 2 readers equals the trainer's, bit for bit." in done.stdout


def test_bandwidth_is_a_test_of_its_own():
    done = example("osu", "--test=bw", "-m", "300", "-i", "5")
    assert (done.returncode, done.stderr) == (0, "")
    sizes = re.findall(r"^(\d+) +\d+\.\d\d$", done.stdout, re.MULTILINE)
    assert sizes == [str(1 << power) for power in range(9)]


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("name", BY_TORCHRUN)
def test_one_of_pytorch_is_right(name):
    arguments, words, _ = BY_TORCHRUN[name]
    done = torchrun(2, "-m", f"zerohop.examples.{name}", arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(words) == 1


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("name", BY_TORCHRUN)
def test_one_of_pytorch_notices_a_wrong_result(name, tmp_path):
    arguments, words, (right, wrong) = BY_TORCHRUN[name]
    text = (FOLDER / f"{name}.py").read_text()
    assert text.count(right) == 1
    file = tmp_path / f"my_{name}.py"
    file.write_text(text.replace(right, wrong))
    done = torchrun(2, str(file), arguments)
    assert done.returncode != 0
    assert "WRONG: " in done.stderr
    assert words not in done.stdout


@pytest.mark.timeout(PATIENCE)
def test_torchrun_starts_it():
    done = torchrun(2, str(FOLDER / "stencil.py"), "--side=40", "--steps=7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(CASES["stencil"][1]) == 1


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize(("name", "mpi"), [("osu", "openmpi"), ("kv_cache", "mpich")])
def test_mpirun_starts_it(name, mpi, tmp_path):
    arguments, words, _ = CASES[name]
    done = mpirun(mpi, 2, tmp_path, str(FOLDER / f"{name}.py"), *arguments.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(words) == 1


@pytest.mark.timeout(PATIENCE)
def test_ray_starts_its_actors(monkeypatch, tmp_path):
    needs(modules=("ray",))
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps a token there
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    done = example("ray_actors", "--actors=3", "--count=1000", "--rounds=2", warnings="default")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rounds of 1000 numbers between 3 actors" in done.stdout
    assert "Every number is right." in done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_can_be_copied(file):
    """One short file, which uses what is public."""
    text = file.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    public = {"import zerohop as zh", "import zerohop.torch"}
    assert set(re.findall(r"^(.*import.*zerohop.*?)(?:  #.*)?$", text, re.MULTILINE)) <= public


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["matvec", "stencil"])
def test_its_kernels_compile(name, architecture, tmp_path):
    compiles(FOLDER / f"{name}.cu", architecture, tmp_path)

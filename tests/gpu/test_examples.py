"""The programs of zerohop.examples on GPUs: both ways of each, with two processes on one GPU and on two."""

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import zerohop as zh
from support.examples import example, rows_of, running
from zerohop.examples.failures import KernelFailed
from zerohop.examples.place import open_place
from zerohop.examples.stencil import kernel as stencil_kernel
from zerohop.examples.stencil.plan import SLOTS, Plan
from zerohop.examples.stencil.rank import SOURCE
from zerohop.local import Link, Ranks

DEVICES = [",".join(f"cuda:{i}" for i in range(gpus)) for gpus in range(1, 3)]
DEVICES = DEVICES[: torch.cuda.device_count()]


@pytest.fixture(autouse=True)
def soft0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


# Few rounds: all processes that use a GPU take turns of milliseconds, and each round trip needs two.
@pytest.mark.parametrize("devices", DEVICES)
def test_every_product_is_right(tmp_path: Path, devices: str, rows: Any) -> None:
    file = tmp_path / "rows.json"
    sizes = ["--batch=480", "--batch=37", "--batch=15360"]
    done = example("matvec", *sizes, "--rounds=10", f"--device={devices}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every product is that of the reference, bit for bit." in done.stdout
    found = rows_of(file)
    for size in (480, 37, 15360):
        rates = {way: found[f"batch {size}", way, "batches"] for way in ("host", "kernel")}
        assert min(rates.values()) > 0
        rows.add("matvec", devices=devices, batch=size, batches_per_second=rates)


@pytest.mark.parametrize("devices", DEVICES)
def test_three_ranks_share_the_batches(devices: str) -> None:
    done = example("matvec", "--batch=97", "--rounds=5", "--ranks=3", f"--device={devices}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize(("ranks", "side"), [(1, 300), (2, 1030), (3, 7)])
def test_every_cell_is_right(
    tmp_path: Path, devices: str, ranks: int, side: int, rows: Any
) -> None:
    file = tmp_path / "rows.json"
    shape = [f"--side={side}", "--steps=21", f"--ranks={ranks}"]
    done = example("stencil", *shape, f"--device={devices}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every cell is that of the reference, bit for bit." in done.stdout
    found = rows_of(file)
    rates = {way: found[f"{side} x {side}", way, "steps"] for way in ("host", "kernel")}
    assert min(rates.values()) > 0
    rows.add("stencil", devices=devices, ranks=ranks, side=side, steps_per_second=rates)


@pytest.mark.parametrize("devices", DEVICES)
def test_every_block_of_a_kv_cache_is_right(tmp_path: Path, devices: str, rows: Any) -> None:
    file = tmp_path / "rows.json"
    shape = ["--requests=100", "--layers=8", "--blocks=256", "--block-bytes=16384"]
    done = example("kv_cache", *shape, f"--device={devices}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every block is what prefill computed, bit for bit." in done.stdout
    found = rows_of(file)
    figures = {metric: found["8 x 256", "host", metric] for metric in ("rate", "p50", "p99")}
    assert min(figures.values()) > 0
    rows.add("kv_cache", devices=devices, **figures)


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("test", ["latency", "bw"])
def test_what_osu_sends_arrives(tmp_path: Path, devices: str, test: str, rows: Any) -> None:
    file = tmp_path / "rows.json"
    arguments = [f"--test={test}", "-i", "20", f"--device={devices}", f"--json={file}"]
    done = example("osu", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit for bit" in done.stdout
    figures = {what: value for (what, _, _), value in rows_of(file).items()}
    assert min(figures.values()) > 0
    rows.add("osu", devices=devices, figures=figures)


@pytest.mark.parametrize("devices", DEVICES)
def test_readers_of_weights_go_on_without_one(tmp_path: Path, devices: str, rows: Any) -> None:
    file = tmp_path / "rows.json"
    shape = ["--layers=6", "--width=700", "--versions=12", "--ranks=4", "--kill=2"]
    done = example("weights", *shape, f"--device={devices}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of PyTorch to 3 readers" in done.stdout
    assert "Every version at 2 readers is that of the reference, bit for bit." in done.stdout
    assert "LOST, rank 2 at version 7 (" in done.stdout
    found = rows_of(file)
    rows.add("weights", devices=devices, rate=found["6 x 700", "host", "rate"])


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_cell_of_split_columns_is_right(
    tmp_path: Path, devices: str, ranks: int, rows: Any
) -> None:
    file = tmp_path / "rows.json"
    shape = ["--rows=301", "--columns=203", "--steps=70", f"--ranks={ranks}"]
    done = example("halo", *shape, f"--device={devices}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "float32 of CuPy" in done.stdout
    assert "Every cell is that of the reference, bit for bit." in done.stdout
    rate = rows_of(file)["301 x 203", "host", "steps"]
    rows.add("halo", devices=devices, ranks=ranks, steps_per_second=rate)


@pytest.mark.skipif(
    all(importlib.util.find_spec(f"jax_cuda{cuda}_plugin") is None for cuda in (12, 13)),
    reason="JAX for CUDA is not installed",
)
@pytest.mark.parametrize("devices", DEVICES)
def test_jax_reads_on_a_gpu_what_was_written(tmp_path: Path, devices: str, rows: Any) -> None:
    file = tmp_path / "rows.json"
    done = example("jax_handoff", "--rounds=3", f"--device={devices}", f"--json={file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every element is that of the reference, bit for bit." in done.stdout
    found = rows_of(file)
    assert found["bfloat16", "host", "in place"] == 3
    rows.add("jax_handoff", devices=devices, rate=found["float32", "host", "rate"])


@pytest.mark.parametrize("name", ["matvec", "stencil"])
def test_a_rank_that_is_killed_ends_the_kernels_of_all(name: str) -> None:
    long = {"matvec": ["--batch=480", "--rounds=100000000"], "stencil": ["--steps=100000000"]}[name]
    with running(name, *long, "--by=kernel", f"--device={DEVICES[-1]}") as job:
        assert job.line.startswith(f"{name}: "), job.line
        os.kill(job.ranks[1], signal.SIGKILL)
        status, errors = job.end()
    assert status == 1
    assert f"{name} stopped: rank 1 was killed by SIGKILL" in errors


def wait_alone(link: Link, directory: Path, gpus: int, leave: bool) -> str:
    """Rank 0 steps, while its neighbour launches nothing, or leaves."""
    stencil_kernel.PATIENCE_NS = 8_000_000_000 if leave else 300_000_000
    world = zh.World(directory, link.rank, 2, timeout=30.0)
    place, plan = open_place(f"cuda:{link.rank % gpus}", SOURCE), Plan(600, 2)
    nbytes = plan.nbytes(link.rank)
    segment = world.segment(nbytes, device=place.device, notifications=SLOTS)
    stepper = stencil_kernel.KernelStepper(world, segment, plan, place)
    world.barrier()
    said = ""
    if link.rank == 0:
        with pytest.raises(KernelFailed) as raised:
            stepper.run(5, lambda done: None)
        said = str(raised.value)
    elif leave:
        world.close()
    link.exchange(None)
    world.close()
    return said


@pytest.mark.parametrize(
    ("leave", "words"),
    [(False, "waited in vain"), (True, "found that no peer is left that could notify")],
)
def test_a_kernel_whose_neighbour_does_nothing_ends(
    tmp_path: Path, leave: bool, words: str
) -> None:
    with Ranks(wait_alone, 2, tmp_path / "job", len(DEVICES), leave) as ranks:
        said = ranks.results()[0]
    assert said.startswith("the kernel of all steps on cuda:0: block ")
    assert words in said
    assert said.endswith(", in round 1")

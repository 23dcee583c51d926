"""The programs of zerohop.examples on GPUs, with two processes or more on one GPU and on two."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
import zerohop.examples
from support.program import example, run_python

FOLDER = Path(zerohop.examples.__file__).parent
GPUS = ["0", "0,1"][: torch.cuda.device_count()]
JAX = any(importlib.util.find_spec(f"jax_cuda{cuda}_plugin") for cuda in (12, 13))

# Few rounds: all processes that use a GPU take turns of milliseconds, and each round trip needs two.
CASES = [
    ("matvec", "--batch=480 --rounds=10", "Every product equals NumPy's"),
    ("matvec", "--batch=37 --rounds=10", "Every product equals NumPy's"),
    ("matvec", "--batch=15360 --rounds=10", "Every product equals NumPy's"),
    ("stencil", "--side=300 --steps=21 --ranks=1", "Every cell equals that of a single process"),
    ("stencil", "--side=1030 --steps=21 --ranks=2", "Every cell equals that of a single process"),
    ("stencil", "--side=6 --steps=21 --ranks=3", "Every cell equals that of a single process"),
    ("halo", "--rows=301 --columns=203 --steps=70 --ranks=1", "x 203 float32 of cupy"),
    ("halo", "--rows=301 --columns=203 --steps=70 --ranks=3", "x 203 float32 of cupy"),
    ("kv_cache", "--layers=8 --blocks=256", "Every block equals the one that prefill computed"),
    ("weights", "--layers=6 --width=700 --versions=12 --kill=2", "Every version at 2 readers"),
    ("osu", "-i 20", "# All data arrived as sent"),
    ("osu", "-i 20 --test bw", "# All data arrived as sent"),
    ("jax_handoff", "--rounds=3", "and JAX reads it in place"),
]


@pytest.fixture(autouse=True)
def soft0(monkeypatch):
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")


@pytest.mark.parametrize("gpus", GPUS)
@pytest.mark.parametrize(("name", "arguments", "words"), CASES)
def test_its_result_is_right(monkeypatch, name, arguments, words, gpus, rows):
    if name == "jax_handoff" and not JAX:
        pytest.skip("JAX for CUDA is not installed")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    done = example(name, *arguments.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert words in done.stdout
    assert "p2p over cpu" not in done.stdout
    said = [line for line in done.stdout.splitlines() if re.search(r"\d", line)]
    rows.add(name, arguments=arguments, gpus=gpus, said=said)


@pytest.mark.parametrize("gpus", GPUS)
def test_a_kernel_whose_neighbour_dies_ends(monkeypatch, tmp_path, gpus):
    """Rank 1 of a copy of the stencil dies where it would launch its kernel."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    text, launch = (FOLDER / "stencil.py").read_text(), "        kernel((blocks,),"
    assert text.count(launch) == 1
    dies = '        if steps and os.environ["RANK"] == "1":\n            os._exit(1)\n'
    (tmp_path / "stencil.py").write_text(text.replace(launch, dies + launch))
    (tmp_path / "stencil.cu").write_text((FOLDER / "stencil.cu").read_text())
    done = run_python(tmp_path / "stencil.py", "--side=600", "--steps=5")
    assert done.returncode == 1
    assert "the kernel ended at step 1 with status 6" in done.stderr  # closed: see types.h

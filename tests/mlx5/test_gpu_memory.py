"""Memory of a GPU on simulated adapters, by a fake libcuda; tests/gpu/test_mlx5_simulation.py is about a real one."""

import json
import re
import sys
from pathlib import Path

import pytest

from mlx5.simulation import library, simulation

INSIDE = Path(__file__).with_name("inside")
REFUSAL = (
    "mlx5sim0 does not register GPU memory through dma-buf (Operation not supported, errno 95)"
)


@pytest.fixture
def run():
    folder = library().with_name("fake_driver")
    assert (folder / "libcuda.so.1").exists(), f"there is no {folder}: make mlx5 builds it"
    with simulation() as adapters:
        yield lambda *words: adapters.run(
            sys.executable, *words, LD_LIBRARY_PATH=str(folder)
        ).splitlines()


def test_it_is_registered_by_its_addresses_where_no_dmabuf_is_mapped(run):
    ways, route, refusal, last = run(INSIDE / "gpu_memory.py")
    assert ways == "peermem peermem"
    assert re.search(r"^gpudirect .*mlx5sim0", route), route
    assert REFUSAL in refusal
    assert last == "all"


def test_verify_says_so(run):
    steps = {
        step["name"]: step for step in map(json.loads, run(INSIDE / "gpu_steps.py", "mlx5sim0"))
    }
    by_dmabuf = steps.pop("gpu memory by dma-buf")
    assert by_dmabuf["outcome"] == "not possible here"
    assert REFUSAL in by_dmabuf["cause"]
    assert set(steps) == {"gpu memory by peermem", "gpudirect write", "gpudirect read"}
    for step in steps.values():
        assert step["outcome"] == "pass", step

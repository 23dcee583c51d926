"""Memory of a real GPU on simulated mlx5 adapters (tests/mlx5), behind the unmodified libibverbs and libmlx5.

The adapter gets the memory by its addresses, as from nvidia-peermem, and copies it by the CUDA driver of the process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlx5.simulation import Simulation, finish, simulation

HERE = Path(__file__).resolve().parent
DEVICE = "mlx5sim0"
STEPS = [
    *("gpu", "gpu memory by peermem", "gpudirect write", "gpudirect read", "spinning kernel"),
    *("gpu notifications", "uar", "kernel queue", "second queue", "closed and reopened"),
]
PLACES = ["host / host", "host / gpu", "gpu / host", "gpu / gpu"]


pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def adapters():
    with simulation() as made:
        yield made


class Verified:
    """What `zerohop verify --adapter` has found: its steps by their names, and all that it printed."""

    def __init__(self, adapters: Simulation, folder: Path) -> None:
        file = folder / "report.json"
        words = ["-m", "zerohop", "verify", "--adapter", DEVICE, "--quick", "--json", str(file)]
        with adapters.start(sys.executable, *words) as program:
            try:
                self.printed, _ = program.communicate(timeout=250)
            except subprocess.TimeoutExpired:  # of its steps those are told that have ended
                program.kill()
                self.printed, _ = program.communicate()
        self.status = program.returncode
        found = json.loads(file.read_text())["steps"] if file.exists() else []
        self._steps: dict[str, dict[str, Any]] = {step["name"]: step for step in found}

    def step(self, name: str) -> dict[str, Any]:
        assert name in self._steps, f"status {self.status}:\n{self.printed}"
        return self._steps[name]

    def passed(self, name: str) -> dict[str, Any]:
        """Its figures."""
        step = self.step(name)
        assert step["outcome"] == "pass", step
        figures: dict[str, Any] = step["figures"]
        return figures


@pytest.fixture(scope="module")
def verified(adapters, tmp_path_factory):
    return Verified(adapters, tmp_path_factory.mktemp("verify"))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_verify_passes(verified, rows, name):
    rows.add("mlx5 simulation", step=name, **verified.passed(name))


@pytest.mark.parametrize("places", PLACES)
def test_a_placement_of_rings_works(verified, places):
    cells = verified.passed("placements")
    assert cells[places] == "works", cells


def test_a_dmabuf_is_registered_where_processors_can_map_it(verified):
    """Else the refusal says so, and all else here went by nvidia-peermem."""
    step = verified.step("gpu memory by dma-buf")
    if step["outcome"] != "pass":
        assert step["outcome"] == "not possible here", step
        assert "does not register GPU memory through dma-buf" in step["cause"], step


def test_no_step_fails(verified):
    assert verified.status == 0, verified.printed


def test_from_gpu_to_gpu(adapters):
    printed = adapters.run(
        sys.executable, HERE.parent / "mlx5/inside/gpu_to_gpu.py", DEVICE, timeout=200
    )
    assert printed.splitlines()[-1] == "all", printed


def pytest_on(adapters: Simulation, *words: str | Path, **environment: str) -> None:
    """Tests of other files, with the simulated adapter in place of soft0."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *words]
    with adapters.start(*command, ZEROHOP_GPU_ROWS=os.devnull, **environment) as run:
        print(finish(run, 250))


def test_kernels_of_two_processes(adapters):
    file = HERE / "test_device_ring.py"
    pytest_on(adapters, "-k", "direct", file, ZEROHOP_TEST_ADAPTER=DEVICE)


@pytest.mark.parametrize("name", ["placement", "notifications"])
def test_the_contract_holds_for_memory_of_a_gpu(adapters, name):
    """By GPUDirect, from one process to the other; each byte and those beside are looked at."""
    file = HERE.parent / f"contract/test_{name}.py"
    variables = {
        "ZEROHOP_TEST_DEVICES": DEVICE,
        "ZEROHOP_TEST_GPUS": "cuda:0,cuda:0",
        "ZEROHOP_TEST_PARTNERS": "process",
    }
    pytest_on(adapters, "--maxfail=5", file, **variables)

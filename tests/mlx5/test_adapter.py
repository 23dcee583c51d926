"""`zerohop verify --adapter` on simulated adapters: it says so, and with a fault the step that it hits says which."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mlx5.simulation import Simulation, simulation

ALONE = ["open", "port", "gid", "mtu", "create queues", "register"]  # without the other end
BARE = ["write and read", "send", "immediate", "inline", "atomics", "64 queue pairs"]
MEASURED = ["latency", "bandwidth"]
ENGINE = ["endpoints", "notifications"]
SRQ = ["srq", "srq exhausted"]

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def adapters():
    with simulation(devices=2) as made:
        yield made


def verify(
    adapters: Simulation, folder: Path, *options: str, **environment: str
) -> tuple[int, str, dict[str, Any]]:
    """Exit status, the page and the JSON."""
    file = folder / "report.json"
    words = [sys.executable, "-m", "zerohop", "verify", "--adapter", "mlx5sim0", "--quick"]
    words += ["--json", str(file), *options]
    with adapters.start(*words, CUDA_VISIBLE_DEVICES="", **environment) as program:
        page, _ = program.communicate(timeout=100)
    return program.returncode, page, json.loads(file.read_text())


def steps(value: dict[str, Any], outcome: str) -> list[str]:
    return [step["name"] for step in value["steps"] if step["outcome"] == outcome]


def step(value: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in value["steps"] if each["name"] == name]
    return found


@pytest.mark.parametrize("other", ["mlx5sim0", "mlx5sim1"])
def test_all_is_verified_and_said_to_be_simulated(adapters, tmp_path, other):
    status, page, value = verify(adapters, tmp_path, "--to", other)
    assert status == 0, page
    assert value["facts"]["what it is"].startswith("NOT HARDWARE: a simulated mlx5 adapter")
    assert steps(value, "fail") == []
    assert set(steps(value, "pass")) >= {*ALONE, "states", *BARE, *SRQ, *ENGINE, *MEASURED}
    assert step(value, "open")["figures"]["provider"] == "libibverbs"
    between = "two processes on mlx5sim0" if other == "mlx5sim0" else "mlx5sim0 and mlx5sim1"
    assert between in page


def test_a_port_that_is_down_is_named_and_the_rest_is_not_tried(adapters, tmp_path):
    port = adapters.root / "sys/class/infiniband/mlx5sim0/ports/1"
    (port / "phys_state").write_text("3: Disabled\n")
    (port / "state").write_text("1: DOWN\n")
    status, page, value = verify(adapters, tmp_path)
    assert status == 1
    assert steps(value, "fail") == ["port"]
    down = step(value, "port")
    assert down["cause"] == "port 1 of mlx5sim0 is DOWN"
    assert down["remedy"] == "ip link set lo up, and check its cable"
    assert set(steps(value, "pass")) == set(ALONE) - {"port"}
    assert step(value, "send")["cause"] == "stands on 'port', which failed"
    assert re.search(r"port: Its port is up\. FAILED: port 1 of mlx5sim0 is DOWN\.", page)


@pytest.mark.parametrize(
    ("command", "failing", "cause", "passing"),
    [
        ("0x5.0x0", [*SRQ, "endpoints"], "ibv_create_srq on mlx5sim0", [*ALONE, *BARE, *MEASURED]),
        ("0x0.0x9", ["register", "states"], "cannot register", ALONE[:-1]),
        ("0x0.0x1a", ["states", "endpoints"], "cannot go to INIT", ALONE),
    ],
    ids=["SRQ", "REG_MR", "MODIFY_QP"],
)
def test_a_command_that_is_refused_fails_what_needs_it(
    adapters, tmp_path, command, failing, cause, passing
):
    status, page, value = verify(adapters, tmp_path, MLX5SIM_REFUSE=f"{command}=12")
    assert status == 1
    assert steps(value, "fail") == failing, page
    for name in failing:
        assert cause in step(value, name)["cause"]
        assert "Cannot allocate memory" in step(value, name)["cause"]
    assert set(steps(value, "pass")) >= set(passing), page

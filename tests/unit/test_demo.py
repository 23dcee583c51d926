"""The demo, as a new user runs it."""

from typing import Any

import pytest
from support.program import run_python


def zerohop_demo(*arguments: str) -> Any:
    return run_python("-m", "zerohop", "demo", *arguments, seconds=280)


@pytest.mark.timeout(300)
def test_the_whole_demo_holds():
    done = zerohop_demo("--ranks", "3", "--verbs", "soft0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every cell equals that of a single process, bit for bit." in done.stdout
    assert "Every version at 2 readers equals the trainer's, bit for bit." in done.stdout
    assert done.stdout.count("host over soft0") == 2


def test_an_unknown_device_ends_the_demo_with_its_reason():
    done = zerohop_demo("--verbs", "mlx5_77")
    assert done.returncode == 1
    assert "no RDMA device is called mlx5_77" in done.stderr

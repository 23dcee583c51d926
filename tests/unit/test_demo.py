"""The demo, as a new user runs it."""

import subprocess
import sys

import pytest


def zerohop_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zerohop", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.timeout(300)
def test_the_whole_demo_holds() -> None:
    done = zerohop_demo("--ranks", "3", "--verbs", "soft0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every cell equals that of a single process, bit for bit." in done.stdout
    assert "Every version at 2 readers equals the trainer's, bit for bit." in done.stdout
    assert done.stdout.count("host over soft0") == 2


def test_an_unknown_device_ends_the_demo_with_its_reason() -> None:
    done = zerohop_demo("--verbs", "mlx5_77")
    assert done.returncode == 1
    assert "no RDMA device is called mlx5_77" in done.stderr

"""The contract suite with its partners elsewhere, as tests/vm runs it between two guests: here by loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

HOST = "127.0.0.1"
CASES = [  # transfers, a partner that is killed, and one without a partner, which is left out
    "test_messages.py::test_recvs_posted_first_match_in_order",
    "test_peer_killed.py::test_kill_9_of_an_idle_peer_is_noticed",
    "test_routes.py::test_the_device_is_the_one_asked_for",
]


@pytest.fixture
def far(repository: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "support.far", HOST, "0"]
    with subprocess.Popen(
        command, cwd=repository / "tests", stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            word, _, port = server.stdout.readline().rpartition(" ")
            assert word == "listening on port"
            yield f"{HOST}:{port.strip()}"
        finally:
            server.kill()


def test_cases_run_with_far_partners(repository: Path, far: str, tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    chosen = {"DEVICES": "soft0", "KINDS": "numpy", "PARTNERS": "far", "FAR": far}
    cases = [f"tests/contract/{case}" for case in CASES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *cases],
        cwd=repository, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, **{f"ZEROHOP_TEST_{name}": value for name, value in chosen.items()}},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    names = [case.get("name", "") for case in ET.parse(report).iter("testcase")]
    assert names == [
        "test_recvs_posted_first_match_in_order[far-soft0]",
        "test_kill_9_of_an_idle_peer_is_noticed[soft0]",
    ]

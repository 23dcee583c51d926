"""These tests need a GPU: tests/gpu/run runs them, on a machine that has one."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from frameworks import unusable
from zerohop import _core

# Elsewhere there is nothing to see; under tests/gpu/run a missing GPU fails every test.
if _core.gpu_count() == 0 and "ZEROHOP_GPU_ROWS" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


class Rows(list[dict[str, Any]]):
    """What was found and measured; written to $ZEROHOP_GPU_ROWS at the end."""

    def add(self, test: str, **facts: Any) -> None:
        self.append({"test": test, **facts})


ROWS = Rows()


@pytest.fixture(scope="session")
def rows() -> Rows:
    return ROWS


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """RuntimeWarnings about streams that went on without what they waited for: here warnings are errors that nothing catches."""
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: said.append(str(failure.exc_value)))
    return said


# The next three import PyTorch, which a machine may lack.
@pytest.fixture(params=[2, 3, 4])
def group(request: Any, tmp_path: Path) -> Iterator[Any]:
    """A Group of that many ranks."""
    from group_of_gpus import Group

    with Group(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Any]:
    """A Group of two ranks."""
    from group_of_gpus import Group

    with Group(tmp_path, 2) as made:
        yield made


@pytest.fixture
def sides() -> Iterator[Any]:
    """Two Sides that are connected."""
    from graphs import two_sides

    with two_sides() as made:
        yield made


def pytest_sessionfinish() -> None:
    for framework, reason in sorted(unusable.items()):
        ROWS.add("framework", name=framework, skipped=reason)
    if path := os.environ.get("ZEROHOP_GPU_ROWS"):
        Path(path).write_text(json.dumps(ROWS, indent=1) + "\n")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for framework, reason in sorted(unusable.items()):
        terminalreporter.write_line(f"skipped all that needs {framework}: {reason}")

"""These tests need a GPU: tests/gpu/run runs them, on a machine that has one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from zerohop import _core

# Elsewhere there is nothing to see; under tests/gpu/run a missing GPU fails every test.
if _core.gpu_count() == 0 and "ZEROHOP_GPU_ROWS" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


class Rows(list[dict[str, Any]]):
    """What was found and measured; written to $ZEROHOP_GPU_ROWS at the end."""

    def add(self, test: str, **facts: Any) -> None:
        self.append({"test": test, **facts})


@pytest.fixture(scope="session")
def rows() -> Iterator[Rows]:
    rows = Rows()
    yield rows
    if path := os.environ.get("ZEROHOP_GPU_ROWS"):
        Path(path).write_text(json.dumps(rows, indent=1) + "\n")

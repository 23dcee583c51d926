"""What the tests of GPUs do about a framework that cannot be imported there."""

import json
import os
import subprocess
import sys
from pathlib import Path

GPU_TESTS = Path(__file__).parents[1] / "gpu"
BROKEN = "import json\njson.row_stack\n"
BESIDE = """
from frameworks import usable

def test_that_needs_it():
    usable("broken", "broken-cuda")
    raise AssertionError

def test_the_rest():
    assert usable("json", "json").loads("1") == 1
"""
ALL_OF_IT = """
from frameworks import usable

broken = usable("broken", "broken-cuda")

def test_that_needs_it():
    raise AssertionError
"""


def test_what_needs_it_is_skipped_by_name_and_the_rest_runs(tmp_path: Path) -> None:
    for name, text in (("broken", BROKEN), ("test_beside", BESIDE), ("test_all", ALL_OF_IT)):
        (tmp_path / f"{name}.py").write_text(text)
    rows = tmp_path / "rows.json"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(GPU_TESTS), "ZEROHOP_GPU_ROWS": str(rows)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    reason = "AttributeError: module 'json' has no attribute 'row_stack'"
    assert f"skipped all that needs broken-cuda: {reason}" in ran.stdout
    assert "1 passed, 2 skipped" in ran.stdout
    row = {"test": "framework", "name": "broken-cuda", "skipped": reason}
    assert json.loads(rows.read_text()) == [row]

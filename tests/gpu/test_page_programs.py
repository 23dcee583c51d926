"""What the chapters in docs show of GPUs runs from top to bottom, on one GPU."""

import pytest
from frameworks import COMPILER, usable
from support.pages import GPU, program, promised
from support.program import run_python


@pytest.mark.parametrize("page", ["docs/kernels.md", "docs/streams.md"])
def test_a_page_runs_from_top_to_bottom(page, tmp_path):
    text = program(page, GPU)
    if "from numba import" in text:
        usable(COMPILER, "numba-cuda")
    file = tmp_path / "page.py"
    file.write_text(text)
    done = run_python(file, seconds=100)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for line in promised(file.read_text()):
        assert line in printed

"""The committed type stub of the extension module says what the module holds."""

import difflib
import subprocess
from pathlib import Path

import pytest


def stub_lines(folder: Path) -> list[str]:
    """All stub files of the extension module below the folder, line by line."""
    lines = []
    for path in sorted(folder.glob("_core*/**/*.pyi")) + sorted(folder.glob("_core*.pyi")):
        lines += [f"# {path.relative_to(folder)}", *path.read_text().splitlines()]
    return lines


@pytest.mark.timeout(300)
def test_stub_is_current(repository: Path, tmp_path: Path) -> None:
    subprocess.run([repository / ".ci/stubs", tmp_path], check=True, timeout=240)
    current = stub_lines(tmp_path)
    assert len(current) > 1
    committed = stub_lines(repository / "python/zerohop")
    difference = list(difflib.unified_diff(committed, current, "committed", "current", lineterm=""))
    assert not difference, "run `make stubs`:\n" + "\n".join(difference)

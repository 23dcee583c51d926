"""The committed type stub of the extension module says what the module holds."""

import subprocess
from pathlib import Path

import pytest


def stub_texts(folder: Path) -> dict[str, str]:
    """Stub file names, relative to the folder, and their contents."""
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.glob("**/*.pyi")}


@pytest.mark.timeout(300)
def test_stub_is_current(repository: Path, tmp_path: Path) -> None:
    subprocess.run([repository / ".ci/stubs", tmp_path], check=True, timeout=240)
    committed = stub_texts(repository / "python/zerohop")
    assert stub_texts(tmp_path) == committed, "python/zerohop/_core.pyi is old: run `make stubs`"

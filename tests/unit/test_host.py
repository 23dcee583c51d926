"""Facts about the machine, read from a tree of fake files."""

from pathlib import Path

import pytest
from zerohop.host import available_memory


def fake_root(root: Path, limit: str | None, used: int = 0) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal:  8000 kB\nMemAvailable:   4000 kB\n")
    (root / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: Deep Thought\n")
    if limit is not None:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/memory.max").write_text(limit + "\n")
        (root / "sys/fs/cgroup/memory.current").write_text(f"{used}\n")
    return root


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        (None, 0, 4096000),
        ("max", 10, 4096000),
        ("1000000", 400000, 600000),
        ("1000000", 2000000, 0),
        ("999999999", 0, 4096000),
    ],
)
def test_available_memory(tmp_path, limit, used, free):
    assert available_memory(fake_root(tmp_path, limit, used)) == free

"""Facts about the machine, read from a tree of fake files."""

from pathlib import Path

import pytest
from zerohop.host import available_memory, cpu_model, decimal_bytes, human_bytes, human_seconds


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
def test_available_memory(tmp_path: Path, limit: str | None, used: int, free: int) -> None:
    assert available_memory(fake_root(tmp_path, limit, used)) == free


def test_cpu_model(tmp_path: Path) -> None:
    assert cpu_model(fake_root(tmp_path, None)) == "Deep Thought"


def test_human_units() -> None:
    sizes = [8, 4096, 65536, 1 << 20, 1 << 30]
    assert [human_bytes(n) for n in sizes] == ["8 B", "4 KiB", "64 KiB", "1 MiB", "1 GiB"]
    rounded = [8, 4096, 65536, 3.28e8, 2e9]
    assert [decimal_bytes(n) for n in rounded] == ["8 B", "4.096 kB", "65.54 kB", "328 MB", "2 GB"]
    times = [2.5, 3e-3, 7.25e-6, 5e-8]
    assert [human_seconds(t) for t in times] == ["2.5 s", "3 ms", "7.25 us", "50 ns"]

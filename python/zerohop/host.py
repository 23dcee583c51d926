"""Facts about this machine from /proc and /sys: free memory, cores, and the platform of a benchmark."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from zerohop import _core


def available_memory(root: Path = Path("/")) -> int:
    """Bytes available to new allocations: MemAvailable, or the rest of the control group's limit if less."""
    return _core.available_memory(str(root))


def cpu_model(root: Path = Path("/")) -> str:
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.machine()


def usable_cores() -> int:
    """Cores this process may run on: under taskset or in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def human_bytes(nbytes: float) -> str:
    """Powers of 1024 by their binary names: 65536 -> '64 KiB'."""
    return _scaled(nbytes, 1024, ("B", "KiB", "MiB", "GiB"))


def decimal_bytes(nbytes: float) -> str:
    """Powers of 1000, to match GB/s: 65536 -> '65.54 kB'."""
    return _scaled(nbytes, 1000, ("B", "kB", "MB", "GB", "TB"))


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    *smaller, largest = units
    for unit in smaller:
        if value < step:
            return f"{value:.4g} {unit}"
        value /= step
    return f"{value:.4g} {largest}"


def human_seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"

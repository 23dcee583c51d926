"""Where the ends of a contender run: where the scheduler puts them, on a core each, or all on one core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FREE, APART, TOGETHER = "free", "a core each", "one core"
PLACEMENTS = (APART, TOGETHER, FREE)
TOPOLOGY = Path("/sys/devices/system/cpu")


def possible(placement: str) -> bool:
    """Whether there are enough cores for two ends."""
    return placement != APART or len(usable_cores()) > 1


def place(placement: str, rank: int) -> None:
    """Binds this thread, and every thread and program that it starts later.

    Call it before other threads exist. With more ranks than cores several share one.
    """
    if placement == FREE:
        return
    cores = usable_cores()
    os.sched_setaffinity(0, {cores[rank % len(cores) if placement == APART else 0]})


@contextmanager
def placed(placement: str, rank: int) -> Iterator[None]:
    """Binds the programs that this thread starts meanwhile."""
    before = os.sched_getaffinity(0)
    place(placement, rank)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def usable_cores(topology: Path = TOPOLOGY) -> list[int]:
    """The processors that this process may use, first one per core, then the other hardware threads."""
    usable = sorted(os.sched_getaffinity(0))
    return sorted(usable, key=lambda cpu: (_siblings(topology, cpu).index(cpu), cpu))


def _siblings(topology: Path, cpu: int) -> list[int]:
    """The hardware threads of its core, including itself ("0,8" or "0-1" in sysfs)."""
    try:
        text = (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return [cpu]
    found: list[int] = []
    for word in text.strip().split(","):
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found if cpu in found else [cpu]

"""What a process holds of the system, by counts."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """nbytes: in RAM; mapped_nbytes: of address space, in `maps` areas; locked_nbytes: that may not be paged out."""

    nbytes: int
    mapped_nbytes: int
    locked_nbytes: int
    fds: int
    threads: int
    maps: int

    def beyond(self, before: Counts) -> dict[str, int]:
        """What there is more of now."""
        then = asdict(before)
        return {name: count - then[name] for name, count in asdict(self).items()}


def counts() -> Counts:
    """From /proc (man 5 proc), without what only waits for Python's collector."""
    gc.collect()
    folder = Path("/proc/self")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Counts(
        nbytes=_kilobytes(status["VmRSS"]),
        mapped_nbytes=_kilobytes(status["VmSize"]),
        locked_nbytes=_kilobytes(status["VmLck"]) + _kilobytes(status["VmPin"]),
        fds=len(os.listdir(folder / "fd")),
        threads=int(status["Threads"]),
        maps=len((folder / "maps").read_text().splitlines()),
    )


def _kilobytes(text: str) -> int:
    return int(text.removesuffix("kB")) << 10


def settled(like: Counts, patience: float = 20.0) -> Counts:
    """As soon as no more descriptors and threads are there than in `like`, or patience (seconds) is over."""
    end = time.monotonic() + patience
    while True:
        now = counts()
        if (now.fds <= like.fds and now.threads <= like.threads) or time.monotonic() > end:
            return now
        time.sleep(0.05)  # ends of threads and sockets of others: nothing to wait on

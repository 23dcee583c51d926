"""Ranks of torch.distributed for the tests, as processes of this host."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from zerohop.local import Link, Ranks

from support.patience import patient
from support.spawned import obey

TIMEOUT = patient(20.0)  # seconds; of every group made for a test


def join(place: Path, rank: int, size: int, backend: str, seconds: float = TIMEOUT) -> None:
    """Becomes that rank of a job that meets in a file."""
    import torch
    import torch.distributed as dist
    import zerohop.torch  # noqa: F401 for the backend

    torch.set_num_threads(1)
    store = dist.FileStore(str(place), size)
    timeout = timedelta(seconds=seconds)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


def _rank(
    link: Link,
    function: Callable[..., Any],
    place: Path,
    size: int,
    backend: str,
    args: tuple[Any, ...],
) -> Any:
    import torch.distributed as dist

    join(place, link.rank, size, backend)
    value = function(*args)
    if size == link.size:
        # Nobody leaves while another still needs it. What ends the default group leaves none to wait for each other in.
        dist.barrier(group=dist.new_group(backend="gloo"))
    dist.destroy_process_group()
    return value


def torch_ranks(
    place: Path,
    function: Callable[..., Any],
    size: int,
    *args: Any,
    backend: str = "zerohop",
    of: int | None = None,
) -> Ranks:
    """`function(*args)` on each. of: size of the job, if others have the ranks that follow."""
    os.environ["OMP_NUM_THREADS"] = "1"
    arguments = (function, place, of or size, backend, args)
    return Ranks(_rank, size, *arguments, silence=patient(90))


def main(descriptor: str, place: str, size: str) -> None:
    """The last rank, to be killed: asked to come, it makes a group with rank 0, and comes to a barrier of each."""
    import torch.distributed as dist

    def come() -> None:
        join(Path(place), int(size) - 1, int(size), "zerohop", patient(60))
        group = dist.new_group([0, int(size) - 1])
        dist.barrier(group=group)
        dist.barrier()

    obey(Connection(int(descriptor)), lambda name: {"come": come}[name]())


if __name__ == "__main__":
    main(*sys.argv[1:])

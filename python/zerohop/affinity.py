"""Which GPU belongs to this process, of several that a launcher has started on a host."""

from __future__ import annotations

import os
from collections.abc import Mapping

from zerohop import _core

__all__ = ["launched_local_rank", "local_gpu"]


def launched_local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """0 without a launcher, or with one whose variables say nothing: World.from_env() complains of those."""
    from zerohop.launch import launched

    try:
        told = launched(environment)
    except ValueError:
        told = None
    return 0 if told is None else told.local_rank


def local_gpu(local_rank: int | None = None) -> str:
    """The GPU of this rank, as ``"cuda:3"``; ``"cpu"`` where the process sees none. It makes no CUDA context.

    Ranks of a host take its GPUs in turn. Where the launcher shows each rank GPUs of its own (``CUDA_VISIBLE_DEVICES``), those
    are counted from ``cuda:0`` on, and a rank with one has that. Call it before anything makes a context, which would be on
    ``cuda:0``, once for each rank: ``torch.cuda.set_device(zerohop.local_gpu())``.

    local_rank: of this process on its host. Default: what torchrun, mpirun or srun has told, else 0.
    """
    if local_rank is None:
        local_rank = launched_local_rank()
    count = _core.gpu_count()
    return f"cuda:{local_rank % count}" if count else "cpu"

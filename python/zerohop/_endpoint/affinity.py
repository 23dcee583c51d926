"""Which GPU belongs to this process, of several that a launcher has started on a host."""

from __future__ import annotations

import os

from zerohop import _core

__all__ = ["local_gpu", "told_local_rank"]


def told_local_rank(default: int = 0) -> int:
    """As $ZEROHOP_LOCAL_RANK has it, else the launcher; default: without one, with one that does not tell it, or with one
    whose variables say nothing, of which World.from_env() complains. Raises ValueError.
    """
    text = os.environ.get("ZEROHOP_LOCAL_RANK", "")
    if text:
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(
                f"ZEROHOP_LOCAL_RANK={text!r} is not a whole number >= 0: correct or unset it"
            )
        return int(text)
    from zerohop._world.launch import launched

    try:
        told = launched(os.environ)
    except ValueError:
        told = None
    return default if told is None or told.local_rank is None else told.local_rank


def local_gpu(local_rank: int | None = None) -> str:
    """The GPU of this rank, as ``"cuda:3"``; ``"cpu"`` where the process sees none. It makes no CUDA context.

    Ranks of a host take its GPUs in turn. Where the launcher shows each rank GPUs of its own (``CUDA_VISIBLE_DEVICES``), those
    are counted from ``cuda:0`` on, and a rank with one has that. Call it before anything makes a context, which would be on
    ``cuda:0``, once for each rank: ``torch.cuda.set_device(zerohop.local_gpu())``.

    local_rank: of this process on its host. Default: ``$ZEROHOP_LOCAL_RANK``, else what torchrun, mpirun or srun has told,
        else 0.
    """
    if local_rank is None:
        local_rank = told_local_rank()
    count = _core.gpu_count()
    return f"cuda:{local_rank % count}" if count else "cpu"

"""Ranks as threads of this process, for collectives by kernels; and what they compare."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zerohop as zh
from typing_extensions import Self
from zerohop import _core
from zerohop.collectives.reductions import OPS

# Streams that share a hardware channel would wait for each other: more of them, before CUDA starts.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
GPUS = [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def gpu_of(rank: int) -> str:
    """The ranks take turns at the GPUs."""
    return GPUS[rank % len(GPUS)]


def synchronize() -> None:
    for gpu in GPUS:
        torch.cuda.synchronize(gpu)


class Group:
    """Worlds of one process, a thread for each while they meet, and a stream for each."""

    def __init__(self, directory: Path, size: int, **options: Any) -> None:
        self.size = size
        self.streams = [torch.cuda.Stream(gpu_of(rank)) for rank in range(size)]
        options = {"device": "soft0", "timeout": 20.0, "gpu_collectives": "kernels", **options}

        def rank(number: int) -> Any:
            world = zh.World(directory, number, size, **options)
            world.all_reduce(
                torch.ones(1, device=gpu_of(number))
            )  # by messages; then the group is set up
            return world

        with ThreadPoolExecutor(size) as threads:
            self.worlds = list(threads.map(rank, range(size)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        synchronize()
        for world in self.worlds:
            world.close()

    def call(self, name: str, rows: list[tuple[Any, ...]], **more: Any) -> list[Any]:
        """Each rank's call, in its stream, with its row of arguments."""
        synchronize()  # what the arguments were made by
        return [
            getattr(world, name)(*row, stream=stream, **more)
            for world, stream, row in zip(self.worlds, self.streams, rows, strict=True)
        ]


def most_bytes(size: int) -> int:
    """Of a block: the blocks of threads of all ranks of a GPU must fit on it at the same time."""
    return 1 << 30 if size <= 2 * len(GPUS) else 7_000_000 // size


def random(dtype: torch.dtype, count: int, generator: torch.Generator) -> torch.Tensor:
    """In host memory."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_complex:
        return torch.randn(count, dtype=dtype, generator=generator)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    least = 0 if dtype == torch.uint8 else -100
    return torch.randint(least, 100, (count,), generator=generator).to(dtype)


def on_gpus(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """By rank."""
    return [each.to(gpu_of(rank)) for rank, each in enumerate(tensors)]


def bits(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().contiguous().view(torch.uint8).numpy()


def reduced(op: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """By the reduction of host arrays, which has tests against NumPy of its own."""
    out = torch.empty_like(inputs[0])
    name = str(inputs[0].dtype).removeprefix("torch.")
    _core.reduce(OPS[op], name, 0.3, bits(out), [bits(each) for each in inputs])
    return out


def ops_of(dtype: torch.dtype) -> list[str]:
    name = str(dtype).removeprefix("torch.")
    return [op for op, number in OPS.items() if not _core.why_no_reduction(number, name)]


def factor(op: str) -> dict[str, Any]:
    return {"factor": 0.3} if op == "premul_sum" else {}

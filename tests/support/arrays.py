"""Registered memory of every kind, with guard bytes around it that nobody may touch.

ZEROHOP_TEST_GPUS=cuda:0,cuda:1 names the GPU of the test and that of its partner, which may be the same.
The cases then run with memory of these: of `kind`s, and where they name "numpy" or "empty" themselves.
"""

import gc
import importlib.util
import os
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import zerohop as zh

from support.gpu_array import GpuArray

Kind = str
View = np.ndarray | GpuArray
GPUS = [name for name in os.environ.get("ZEROHOP_TEST_GPUS", "").split(",") if name]
KINDS: list[Kind] = ["cuda", "cuda_empty"] if GPUS else ["numpy", "torch", "empty", "bytearray"]
HOST: Kind = "bytearray"  # of the host in every run
# What lies on a GPU instead. "counter": where atomics are for it; otherwise as "numpy".
MOVED = (
    {"numpy": "cuda", "counter": "cuda", "empty": "cuda_empty"} if GPUS else {"counter": "numpy"}
)
GUARD = 160  # bytes on either side
POISON = 0xA5

side: ContextVar[int] = ContextVar("side", default=0)  # 0: of the test; 1: of its partner


def on_gpu() -> bool:
    """Whether the memory lies on GPUs: "cpu,cpu" as GPUs tries these classes without one."""
    return any(name.startswith("cuda") for name in GPUS)


def staged_by_endpoints() -> bool:
    """Whether the Endpoints copy the memory of GPUs, as if no device reached it."""
    return on_gpu() and os.environ.get("ZEROHOP_REGISTRATION") == "staged"


def has_atomics(kind: Kind) -> bool:
    """Nobody does them where the Endpoints copy what a peer asks for."""
    return not (staged_by_endpoints() and MOVED.get(kind, kind).startswith("cuda"))


def placed(kind: Kind) -> Kind:
    """The kind that this run has in place of that one."""
    return HOST if kind == "counter" and not has_atomics(kind) else MOVED.get(kind, kind)


def warm_up(gpus: list[str]) -> None:
    """Does what takes seconds at the first time: not in a deadline of a test."""
    if gpus:
        import torch

        for name in gpus:
            torch.zeros(1, device=name).add_(1).tolist()


def give_back() -> None:
    """Frees what nothing refers to any more; PyTorch would keep a GPU's for the next tensor."""
    gc.collect()
    if on_gpu():
        import torch

        torch.cuda.empty_cache()


def missing_reason(kind: Kind) -> str | None:
    if kind in ("torch", "cuda", "cuda_empty") and importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    return None


@dataclass
class Block:
    """`nbytes` registered bytes inside a bigger poisoned buffer.

    memory: the registration, uint8. bytes: a view of the same bytes. whole: with the guards, of which
    there are `begin` bytes before the registered ones.
    """

    memory: zh.Memory
    bytes: View
    whole: View
    begin: int
    owner: Any

    def check_guards(self) -> None:
        """Fails if a byte outside the registered range has changed."""
        whole, end = np.asarray(self.whole), self.begin + self.memory.nbytes
        outside = np.concatenate([whole[: self.begin], whole[end:]])
        assert (outside == POISON).all(), "bytes outside the registered memory were written"


def block(ep: zh.Endpoint, kind: Kind, nbytes: int, offset: int = 0) -> Block:
    """A Block of one kind, starting `offset` bytes after the guard; its bytes are poisoned too."""
    begin, total = GUARD + offset, 2 * GUARD + offset + nbytes
    owner, whole = _buffer(ep, placed(kind), total)
    part = owner[begin : begin + nbytes]
    memory = part if isinstance(part, zh.Memory) else ep.register(part)
    whole[:] = POISON
    return Block(memory, whole[begin : begin + nbytes], whole, begin, owner)


def _buffer(ep: zh.Endpoint, kind: Kind, total: int) -> tuple[Any, View]:
    if kind == "numpy":
        array = np.empty(total, np.uint8)
        return array, array
    if kind == "bytearray":
        raw = memoryview(bytearray(total))
        return raw, np.frombuffer(raw, np.uint8)
    if kind in ("empty", "cuda_empty"):
        return _made(ep, kind, (total,), "uint8")
    import torch

    tensor = torch.empty(total, dtype=torch.uint8, device=_device(kind))
    return tensor, _seen(tensor, "uint8")


def _seen(tensor: Any, dtype: Any) -> View:
    if GPUS:
        return GpuArray(tensor, tuple(tensor.shape), dtype)
    return tensor.numpy()


def _device(kind: Kind) -> str:
    return GPUS[side.get()] if kind.startswith("cuda") else "cpu"


def _made(
    ep: zh.Endpoint, kind: Kind, shape: tuple[int, ...], dtype: str
) -> tuple[zh.Memory, View]:
    memory = ep.empty(shape, dtype, device=_device(kind))
    if kind == "empty":
        return memory, np.asarray(memory)
    import torch

    return memory, GpuArray(torch.from_dlpack(memory), shape, dtype)


def array(ep: zh.Endpoint, kind: Kind, values: np.ndarray) -> tuple[zh.Memory, View]:
    """Registered memory of one kind holding a copy of `values`, and a view of it."""
    kind = placed(kind)
    if kind in ("empty", "cuda_empty"):
        memory, view = _made(ep, kind, values.shape, str(values.dtype))
        view[...] = values
        return memory, view
    if kind in ("torch", "cuda"):
        import torch

        tensor = torch.from_numpy(values.copy()).to(_device(kind))
        return ep.register(tensor), _seen(tensor, values.dtype)
    if kind == "bytearray":
        raw = bytearray(values.tobytes())
        view = np.frombuffer(raw, values.dtype).reshape(values.shape)
        typed = memoryview(raw).cast(values.dtype.char, values.shape)
        return ep.register(typed), view
    assert kind == "numpy", kind
    copy = values.copy()
    return ep.register(copy), copy


def pattern(nbytes: int, seed: int = 0) -> np.ndarray:
    """Bytes that differ from POISON, from each other and from seed to seed."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)

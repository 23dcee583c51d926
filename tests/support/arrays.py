"""Registered memory of every kind, with guard bytes around it that nobody may touch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import zerohop as zh

Kind = str
KINDS: list[Kind] = ["numpy", "torch", "empty", "bytearray"]
GUARD = 160  # bytes on either side
POISON = 0xA5


def missing_reason(kind: Kind) -> str | None:
    if kind == "torch" and importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    return None


@dataclass
class Block:
    """`nbytes` registered bytes inside a bigger poisoned buffer.

    memory: the registration, uint8. bytes: a numpy view of the same bytes. whole: with the guards.
    """

    memory: zh.Memory
    bytes: np.ndarray
    whole: np.ndarray
    owner: Any

    def check_guards(self) -> None:
        """Fails if a byte outside the registered range has changed."""
        start = self.bytes.ctypes.data - self.whole.ctypes.data
        outside = np.concatenate([self.whole[:start], self.whole[start + self.bytes.nbytes :]])
        assert (outside == POISON).all(), "bytes outside the registered memory were written"


def block(ep: zh.Endpoint, kind: Kind, nbytes: int, offset: int = 0) -> Block:
    """A Block of one kind, starting `offset` bytes after the guard; its bytes are poisoned too."""
    begin, total = GUARD + offset, 2 * GUARD + offset + nbytes
    if kind == "empty":
        owner = ep.empty(total)
        whole = np.asarray(owner)
        memory = owner[begin : begin + nbytes]
    else:
        owner, whole = _buffer(kind, total)
        memory = ep.register(owner[begin : begin + nbytes])
    whole[:] = POISON
    return Block(memory, whole[begin : begin + nbytes], whole, owner)


def _buffer(kind: Kind, total: int) -> tuple[Any, np.ndarray]:
    if kind == "numpy":
        array = np.empty(total, np.uint8)
        return array, array
    if kind == "torch":
        import torch

        tensor = torch.empty(total, dtype=torch.uint8)
        return tensor, tensor.numpy()
    assert kind == "bytearray", kind
    view = memoryview(bytearray(total))
    return view, np.frombuffer(view, np.uint8)


def array(ep: zh.Endpoint, kind: Kind, values: np.ndarray) -> tuple[zh.Memory, np.ndarray]:
    """Registered memory of one kind holding a copy of `values`, and a numpy view of it."""
    if kind == "empty":
        memory = ep.empty(values.shape, str(values.dtype))
        view = np.asarray(memory)
        view[...] = values
        return memory, view
    if kind == "torch":
        import torch

        tensor = torch.from_numpy(values.copy())
        return ep.register(tensor), tensor.numpy()
    if kind == "bytearray":
        raw = bytearray(values.tobytes())
        view = np.frombuffer(raw, values.dtype).reshape(values.shape)
        typed = memoryview(raw).cast(values.dtype.char, values.shape)
        return ep.register(typed), view
    copy = values.copy()
    return ep.register(copy), copy


def pattern(nbytes: int, seed: int = 0) -> np.ndarray:
    """Bytes that differ from POISON, from each other and from seed to seed."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)

"""Every dtype crosses unchanged, whichever library it comes from."""

from __future__ import annotations

import numpy as np
import pytest
from support.arrays import array, pattern
from support.keeper import Keeper, keep

NUMPY = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
TORCH = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
]  # fmt: skip


def values_of(dtype: str) -> np.ndarray:
    itemsize = np.dtype(dtype).itemsize
    raw = pattern(33 * itemsize, seed=itemsize)
    return (raw & 1).view(bool) if dtype == "bool" else raw.view(dtype)


@pytest.mark.parametrize("dtype", NUMPY)
def test_numpy_dtypes(remote, dtype):
    values = values_of(dtype)
    with remote(keep) as s:
        keeper = Keeper(s.link)
        castable = np.dtype(dtype).char in "?bhilqBHILQfd"  # what memoryview.cast knows
        for kind in ("numpy", "empty", "bytearray") if castable else ("numpy", "empty"):
            memory, _ = array(s.ep, kind, values)
            target = keeper.array("empty", np.zeros_like(values))
            assert memory.dtype == target.remote.dtype == dtype
            assert memory.itemsize == target.remote.itemsize == np.dtype(dtype).itemsize
            s.peer.write(memory, target.remote).wait()
            arrived = target.show()
            assert arrived.dtype == dtype
            assert arrived.tobytes() == values.tobytes()
        keeper.end()


def torch_server(ep, peer, link, dtype):
    """Memory of one PyTorch dtype, made by ep.empty, seen through DLPack."""
    import torch

    memory = ep.empty((7, 5), dtype)
    tensor = torch.from_dlpack(memory)
    assert str(tensor.dtype) == f"torch.{dtype}"
    link.send(memory.remote)
    link.meet("written")
    link.send(tensor.view(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize("dtype", TORCH)
def test_torch_dtypes(thread, dtype):
    import torch

    wanted = getattr(torch, dtype)
    itemsize = torch.empty((), dtype=wanted).element_size()
    raw = torch.from_numpy(pattern(7 * 5 * itemsize))
    tensor = (raw & 1).bool().reshape(7, 5) if dtype == "bool" else raw.view(wanted).reshape(7, 5)
    with thread(torch_server, dtype) as s:
        memory = s.ep.register(tensor)
        far = s.link.recv()
        assert memory.dtype == far.dtype == dtype
        assert memory.itemsize == far.itemsize == itemsize
        s.peer.write(memory, far).wait()
        s.link.meet("written")
        assert s.link.recv() == tensor.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", ["int33", "O", "datetime64[s]", "U4", "float128", ""])
def test_other_dtypes_are_refused_by_name(open_endpoint, dtype):
    with pytest.raises((TypeError, ValueError), match="dtype"):
        open_endpoint().empty(4, dtype)


@pytest.mark.parametrize("values", [np.array(["ab"]), np.array([None]), np.zeros(2, "datetime64[s]"),
                                    np.zeros(2, "f4,i4"), np.zeros(2, ">i4")])  # fmt: skip
def test_arrays_of_other_dtypes_are_refused(open_endpoint, values):
    with pytest.raises((TypeError, ValueError, BufferError)):
        open_endpoint().register(values)

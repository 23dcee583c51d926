"""The view of a GPU's array that the contract tests use, here of PyTorch's arrays in host memory."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support.gpu_array import GpuArray
from support.host_only import HOST_ONLY


def both(values: Any) -> tuple[GpuArray, np.ndarray]:
    """A view of a tensor, and the same in NumPy; neither shares memory with `values`."""
    tensor = torch.from_numpy(values.copy())
    return GpuArray(tensor, tuple(tensor.shape), values.dtype), values.copy()


BASE = np.arange(24, dtype=np.int16).reshape(4, 6)


@pytest.mark.parametrize(
    "index", [0, (1, 2), slice(1, 3), (slice(None), 2), (..., -1), [3, 0], slice(None, None, -2)]
)
def test_what_is_read_is_what_numpy_reads(index: Any) -> None:
    view, values = both(BASE)
    found = view[index]
    np.testing.assert_array_equal(found, values[index])
    assert type(found) is type(values[index])
    if isinstance(found, np.ndarray) and np.shares_memory(values, values[index]):
        with pytest.raises(ValueError, match="read-only"):
            found[...] = 1  # it would be lost


def test_what_is_assigned_is_in_the_tensor() -> None:
    tensor = torch.zeros(6, dtype=torch.int32)
    view = GpuArray(tensor, (6,), np.int32)
    view[:] = np.arange(6)
    assert tensor.tolist() == list(range(6))
    view += 10
    assert isinstance(view, GpuArray)
    assert tensor.tolist() == list(range(10, 16))
    view[...] = 3
    assert tensor.tolist() == [3] * 6
    with pytest.raises(AssertionError, match="only the whole"):
        view[2] = 1
    tensor[4] = 9
    assert view[4] == 9


def test_a_slice_of_bytes_shares_them() -> None:
    whole, _ = both(np.zeros(10, np.uint8))
    whole[2:5][:] = 7
    assert whole.tolist() == [0, 0, 7, 7, 7, 0, 0, 0, 0, 0]
    assert whole[5:3].shape == (0,)
    assert whole[::2].tolist() == [0, 7, 7, 0, 0]


@pytest.mark.parametrize("name", HOST_ONLY)
def test_each_case_that_is_left_out_exists(repository: Path, name: str) -> None:
    file, _, case = name.partition("::")
    source = (repository / "tests/contract" / file).read_text()
    assert not case or re.search(rf"^def {case}\(", source, re.MULTILINE)
    assert len(HOST_ONLY[name]) > 15

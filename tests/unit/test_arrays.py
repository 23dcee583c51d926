"""Arrays enter and leave with their bytes: dtypes, layouts, indexing, and what is refused."""

import array
import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
import zerohop as zh
from zerohop._core import ArrayView

NUMPY_DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
TORCH_ONLY_DTYPES = [
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu",
]  # fmt: skip
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, ::2],
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "one row": lambda a: a[2],
    "0-d": lambda a: a[1, 2, ...],
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_arrays_enter_and_leave_with_their_bytes(dtype, layout):
    source = LAYOUTS[layout](np.arange(4 * 5).reshape(4, 5).astype(dtype))
    view = ArrayView(source)
    assert (view.shape, view.strides, view.dtype) == (source.shape, source.strides, dtype)
    assert (view.address, view.nbytes) == (source.ctypes.data, source.nbytes)
    assert view.contiguous == source.flags.c_contiguous
    assert (view.device, view.writable, view.why_read_only) == ("cpu", True, "")
    for back in (np.asarray(view), np.from_dlpack(view)):
        assert (back.dtype, back.shape) == (source.dtype, source.shape)
        np.testing.assert_array_equal(back, source)
        assert back.size == 0 or np.shares_memory(back, source)
        assert back.flags.writeable


@pytest.mark.parametrize("dtype", NUMPY_DTYPES + TORCH_ONLY_DTYPES)
def test_torch_tensors_enter_and_leave_with_their_bytes(dtype):
    wanted = getattr(torch, dtype)
    raw = torch.arange(5 * 6 * torch.empty((), dtype=wanted).element_size(), dtype=torch.uint8)
    raw = raw % 2 if dtype == "bool" else raw
    tensor = raw.view(wanted).reshape(5, 6)[1:, ::2]
    view = ArrayView(tensor)
    assert (view.dtype, view.shape, view.address) == (dtype, (4, 3), tensor.data_ptr())
    assert view.strides == tuple(s * tensor.element_size() for s in tensor.stride())
    back = torch.from_dlpack(view)
    assert (back.dtype, back.data_ptr()) == (wanted, tensor.data_ptr())
    assert (back.shape, back.stride()) == (tensor.shape, tensor.stride())


@pytest.mark.parametrize("dtype", TORCH_ONLY_DTYPES)
def test_types_without_a_format_leave_as_unsigned_integers(dtype):
    tensor = torch.arange(4).to(getattr(torch, dtype))
    width = {1: "uint8", 2: "uint16"}[tensor.element_size()]
    back = np.asarray(ArrayView(tensor))
    assert back.dtype == width
    np.testing.assert_array_equal(back, tensor.view(getattr(torch, width)).numpy())


@pytest.mark.parametrize("dtype", TORCH_ONLY_DTYPES)
def test_ml_dtypes_arrays_enter_by_name(dtype):
    source = np.arange(12).astype(getattr(ml_dtypes, dtype)).reshape(3, 4)[:, ::-1]
    view = ArrayView(source)
    assert (view.dtype, view.strides, view.writable) == (dtype, source.strides, True)
    assert view.address == source.ctypes.data
    source.flags.writeable = False
    assert not ArrayView(source).writable


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_arrays_enter_read_only(dtype):
    source = jnp.arange(6, dtype=dtype)
    view = ArrayView(source)
    assert (view.dtype, view.shape, view.writable) == (dtype, (6,), False)
    assert view.address == source.unsafe_buffer_pointer()


@pytest.mark.parametrize(
    ("source", "dtype", "shape", "writable"),
    [
        (b"abc", "uint8", (3,), False),
        (bytearray(5), "uint8", (5,), True),
        (memoryview(bytearray(24)).cast("d", (1, 3)), "float64", (1, 3), True),
        (memoryview(b"abcd").cast("c"), "uint8", (4,), False),
        (array.array("l", [1, 2]), "int64", (2,), True),
        (array.array("H", [1, 2]), "uint16", (2,), True),
        ((ctypes.c_int32 * 4)(), "int32", (4,), True),
        (((ctypes.c_double * 2) * 3)(), "float64", (3, 2), True),
        (mmap.mmap(-1, 4096), "uint8", (4096,), True),
        (np.float32(1), "float32", (), False),
        (np.zeros(3, "u1").astype(">u1"), "uint8", (3,), True),
        (bytearray(), "uint8", (0,), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_with_a_buffer_enters(source, dtype, shape, writable):
    view = ArrayView(source)
    assert (view.dtype, view.shape, view.writable) == (dtype, shape, writable)
    assert bool(view.why_read_only) != writable


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([1, 2], "list is not an array"),
        (None, "NoneType is not an array"),
        (np.zeros(2, ">i4"), "byte order"),
        (np.array([None]), "references, not bytes"),
        (np.array(["ab"]), "numpy.ndarray are not supported"),
        (np.zeros(2, "datetime64[s]"), "dtype 'M'"),
        (np.zeros(2, "f4,i4"), "format 'T"),
        (np.zeros(2, np.longdouble), "format 'g'"),
        (np.zeros(2, np.clongdouble), "format 'Zg'"),
        (torch.zeros(2, dtype=torch.float4_e2m1fn_x2), r"dtype\(code=17, bits=4, lanes=2\)"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(source, words):
    with pytest.raises(TypeError, match=words):
        ArrayView(source)


def conjugated() -> Any:
    return torch.ones(1, dtype=torch.complex64).conj()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.zeros(3, requires_grad=True), "requires grad"),
        (lambda: torch.nn.Parameter(torch.zeros(3)), "requires grad"),
        (conjugated, "resolve_conj"),
        (lambda: conjugated().imag, "resolve_neg"),
        (lambda: conjugated()[0].imag, "resolve_neg"),
        (lambda: torch.eye(3).to_sparse(), "doesn't have storage"),
        (lambda: torch.zeros(3, device="meta"), "meta"),
        (lambda: torch._efficientzerotensor(3), "no memory"),
    ],
)
def test_tensors_whose_bytes_are_not_their_values_are_refused(make, words):
    with pytest.raises(BufferError, match=words) as caught:
        ArrayView(make())
    assert "\n" not in str(caught.value)


def test_read_only_arrays_enter_and_leave_read_only():
    source = np.arange(3)
    source.flags.writeable = False
    view = ArrayView(source)
    assert not view.writable
    assert "read-only" in view.why_read_only
    assert not np.asarray(view).flags.writeable
    assert not np.from_dlpack(view).flags.writeable
    assert memoryview(view).readonly
    with pytest.raises(BufferError, match=r"max_version=\(1, 0\)"):
        view.__dlpack__()


def test_arrays_with_repeated_elements_are_no_destination():
    assert "same bytes" in ArrayView(torch.zeros(3).expand(2, 3)).why_read_only
    assert ArrayView(torch.zeros(3).expand(1, 3)).writable


@pytest.mark.parametrize(
    "key", [4, -5, (0, 5), (0, 0, 0, 0), (..., ...), 2**70, [0], True, 1.0, "a", np.array([1])]
)
def test_indices_that_numpy_refuses_or_copies_for_are_index_errors(key):
    with pytest.raises(IndexError) as caught:
        ArrayView(np.zeros((4, 5, 6)))[key]
    assert len(str(caught.value)) > 20


def test_arrays_beyond_the_limit_of_dimensions_are_refused():
    assert ArrayView(np.zeros((1,) * 32)).shape == (1,) * 32
    with pytest.raises(ValueError, match="33 dimensions"):
        ArrayView(np.zeros((1,) * 33))
    with pytest.raises(ValueError, match="33 dimensions"):
        ArrayView(np.zeros((1,) * 32))[None]


def test_remote_memory_is_no_array_of_objects():
    """NumPy would ask a sequence for each of its elements, for minutes."""
    with zh.Endpoint("soft0") as endpoint, endpoint.empty((1000, 1000)) as memory:
        with pytest.raises(TypeError, match=r"peer\.read"):
            np.asarray(memory.remote)
        with pytest.raises(TypeError, match=r"peer\.read"):
            np.array(memory.remote, dtype=float, copy=True)

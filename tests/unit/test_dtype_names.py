"""Element types are named as NumPy, ml_dtypes and PyTorch name them."""

import sys

import numpy as np
import pytest
import zerohop as zh
from support.program import run_python

NATIVE, FOREIGN = ("<", ">") if sys.byteorder == "little" else (">", "<")


@pytest.fixture(scope="module")
def ep():
    with zh.Endpoint("soft0") as endpoint:
        yield endpoint


NUMPY = ["f4", "f8", "f2", "e", "int", "float", "bool", "complex", "i8", "u2", "b1", "?", "half",
         "single", "double", "longlong", "uint", NATIVE + "f4", "=f4", "float16", int, float, bool,
         complex, np.float16, np.longlong, np.bool_, np.dtype("i4"), np.dtype(NATIVE + "i4"),
         np.zeros(3, "u4").dtype]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_what_numpy_takes(ep, dtype):
    memory = ep.empty(3, dtype)
    assert np.asarray(memory).dtype == np.dtype(dtype)
    assert memory.dtype == np.dtype(dtype).name


OWN = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "complex32"]


def test_names_that_numpy_lacks():
    """Of themselves: other tests import ml_dtypes, which makes NumPy know some of them."""
    code = f"""
import sys
import zerohop as zh
with zh.Endpoint("soft0") as ep:
    print(*(ep.empty(3, name).dtype for name in {OWN}))
assert "ml_dtypes" not in sys.modules
"""
    done = run_python("-c", code)
    assert done.stdout.split() == OWN, done.stderr


def test_dtypes_of_ml_dtypes(ep):
    import ml_dtypes

    for dtype in (ml_dtypes.bfloat16, np.dtype(ml_dtypes.float8_e4m3fn)):
        assert ep.empty(3, dtype).dtype == np.dtype(dtype).name


def test_dtypes_of_torch(ep):
    import torch

    for dtype in (torch.half, torch.float, torch.bfloat16, torch.float8_e5m2, torch.long):
        memory = ep.empty(3, dtype)
        assert torch.from_dlpack(memory).dtype == dtype
        assert ep.empty(3, str(dtype)).dtype == memory.dtype
    assert ep.empty(3, torch.half, torch.device("cpu")).device == "cpu"


@pytest.mark.parametrize("dtype", ["nope", "", "S3", "f4,f4", "O", "M8[s]", "longdouble", "torch.float",
                                   [("a", "f4")], np.dtype([("a", "f4")]), object], ids=str)  # fmt: skip
def test_types_without_a_name_here(ep, dtype):
    with pytest.raises(ValueError, match="is not supported; use one of bool, int8"):
        ep.empty(3, dtype)


@pytest.mark.parametrize("dtype", [None, 3, np.zeros, b"\xff"], ids=str)
def test_what_is_no_dtype(ep, dtype):
    with pytest.raises(TypeError, match='a dtype is a name such as "float32"'):
        ep.empty(3, dtype)


@pytest.mark.parametrize("dtype", [FOREIGN + "f4", np.dtype(FOREIGN + "i8")], ids=str)
def test_the_byte_order_of_other_machines(ep, dtype):
    with pytest.raises(ValueError, match="has another byte order than this machine: use "):
        ep.empty(3, dtype)

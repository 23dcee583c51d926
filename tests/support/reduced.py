"""Reductions by NumPy: arrays to reduce, and what becomes of them, bit for bit."""

import ml_dtypes
import numpy as np

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FLOATS = [*HALVES, "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
OPS = {
    "sum": [*INTEGERS, *FLOATS, *COMPLEX, "bool"],
    "prod": [*INTEGERS, *FLOATS, *COMPLEX, "bool"],
    "min": [*INTEGERS, *FLOATS, "bool"],
    "max": [*INTEGERS, *FLOATS, "bool"],
    "avg": [*FLOATS, *COMPLEX],
    "premul_sum": [*FLOATS, *COMPLEX],
    "band": [*INTEGERS, "bool"],
    "bor": [*INTEGERS, "bool"],
    "bxor": [*INTEGERS, "bool"],
    "land": [*INTEGERS, *FLOATS, "bool"],
    "lor": [*INTEGERS, *FLOATS, "bool"],
}
FACTOR = 0.3
NUMPY = {
    "sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add,
    "premul_sum": np.add, "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    "land": np.logical_and, "lor": np.logical_or,
}  # fmt: skip


def given(rank, count, dtype, number=0):
    random = np.random.default_rng(1000 * number + rank)
    kind = np.dtype(HALVES.get(dtype, dtype))
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool)
    if dtype in INTEGERS:
        return random.integers(0, 256, (count, kind.itemsize), np.uint8).view(kind)[:, 0] * (
            random.integers(0, 3, count) > 0
        ).astype(kind)
    values = random.standard_normal(count) * np.exp2(random.integers(-8, 8, count))
    if dtype in COMPLEX:
        values = values + 1j * random.standard_normal(count)
    return np.where(random.integers(0, 3, count) > 0, values, 0).astype(kind)


def pair(real, imag):
    made = np.empty(len(real), np.result_type(real, np.complex64))
    made.real, made.imag = real, imag
    return made


def reduced(op, arrays, ranks=0):
    """From left to right; halves in float32, rounded once. ranks: whose arrays these have been made of; default: one each."""
    dtype = arrays[0].dtype
    wide = np.float32 if dtype in HALVES.values() else dtype
    with np.errstate(all="ignore"):
        result = arrays[0].astype(wide)
        if op in ("land", "lor"):
            result = result != 0
        for other in arrays[1:]:
            other = other.astype(wide)
            if op == "prod" and dtype.kind == "c":  # the textbook's formula, as the engine's
                a, b, c, d = result.real, result.imag, other.real, other.imag
                result = pair(a * c - b * d, a * d + b * c)
            else:
                result = NUMPY[op](result, other)
            result = result.astype(wide)
        result = result.astype(wide)
        if op == "avg":
            count = np.array(ranks or len(arrays), result.real.dtype)
            parts = pair(result.real / count, result.imag / count)
            result = parts if dtype.kind == "c" else result / count
        if op == "premul_sum":
            result = result * np.array(FACTOR, result.real.dtype)
        return result.astype(dtype)


def same(came, expected, what):
    assert came.dtype == expected.dtype
    width = came.dtype.itemsize
    wrong = np.flatnonzero(
        (came.view(np.uint8) != expected.view(np.uint8)).reshape(-1, width).any(axis=1)
    )
    assert not len(wrong), (
        f"{what}: {len(wrong)} of {len(came)}: {came[wrong[0]]!r}, not {expected[wrong[0]]!r}"
    )

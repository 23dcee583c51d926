"""What NumPy makes of the arrays of all ranks, in the order of ranks."""

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


def pair(real, imag):
    made = np.empty(len(real), np.result_type(real, np.complex64))
    made.real, made.imag = real, imag
    return made


def reduced(op, arrays):
    """In the order of ranks; halves in float32, rounded once."""
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
            count = np.array(len(arrays), result.real.dtype)
            parts = pair(result.real / count, result.imag / count)
            result = parts if dtype.kind == "c" else result / count
        if op == "premul_sum":
            result = result * np.array(FACTOR, result.real.dtype)
        return result.astype(dtype)

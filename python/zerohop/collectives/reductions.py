"""Operations of reductions, as a program names them. cpp/engine/collective has what ranks do.

Blocks are combined in the order of ranks, or across hosts in the order that the World's table of algorithms gives (table.py). So the
result depends on nothing else: it is the same on all ranks, and in every run, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zerohop import _core

OPS = {name: number for number, name in enumerate(_core.OPS) if number}  # the first is none
_NAMES = ", ".join(OPS)


class Reduction(NamedTuple):
    """op: its place in _core.OPS. factor: of premul_sum."""

    op: int
    factor: float = 1.0

    def check(self, dtype: str) -> None:
        """Raises TypeError."""
        reason = _core.why_no_reduction(self.op, dtype)
        if reason:
            raise TypeError(reason)


def check_elements(array: Any, what: str) -> None:
    """Raises TypeError for an array of NumPy that other collectives take as uint8: of strings, datetimes, records, another byte order."""
    if not isinstance(array, np.ndarray):
        return
    try:
        _core.ArrayView(array)
    except TypeError:
        is_time = array.dtype.kind in "mM"
        remedy = 'view it as "int64" (for min and max)' if is_time else "convert it to one of those"
        raise TypeError(
            f"{what}: elements of {array.dtype} have no reductions, which take bool, integers, float16, bfloat16, float32, float64 and "
            f"complex ones: {remedy}"
        ) from None


def parse_reduction(op: str, factor: float | None) -> Reduction:
    """Raises ValueError, TypeError."""
    if not isinstance(op, str):
        raise TypeError(f"op must be the name of an operation, not {op!r}: one of {_NAMES}")
    if op not in OPS:
        raise ValueError(f"there is no reduction {op!r}: op is one of {_NAMES}")
    if (factor is None) != (op != "premul_sum"):
        raise ValueError('op="premul_sum" takes factor=, and no other operation does')
    if isinstance(factor, str):
        raise TypeError(f"factor must be a number, not {factor!r}")
    return Reduction(OPS[op], 1.0 if factor is None else float(factor))

"""Matrices, vectors and the products they must give.

All entries are sixteenths from -8 to 8: products are multiples of 1/256 below 64, sums of 32 of them below 2048. Such
numbers need 19 bits and a sign, of the 24 that float32 has, so that every order of addition, fused or not, gives the same
float, and the check is bit for bit.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["NBYTES", "SETS", "SIDE", "Floats", "Problem"]

SIDE = 32  # of a matrix, and length of a vector: a lane of a warp for each row
NBYTES = 4 * SIDE  # of a vector
SETS = 5  # of vectors, taken in turn: what a buffer had two batches ago is none of the same set
_SCALE = 16
_POISON = np.float32(np.nan)  # equal to nothing

Floats: TypeAlias = npt.NDArray[np.float32]


class Problem:
    """`batch` vectors in each of SETS sets, and as many matrices, the same on every rank."""

    def __init__(self, batch: int) -> None:
        random = np.random.default_rng(batch)
        self.batch = batch
        self._matrices = random.integers(-128, 129, (batch, SIDE, SIDE), np.int16)
        self._vectors = random.integers(-128, 129, (SETS, batch, SIDE), np.int16)

    def matrices(self, first: int, end: int) -> Floats:
        """Of the vectors [first, end), each row by row."""
        return _floats(self._matrices[first:end] / _SCALE)

    def vectors(self) -> Floats:
        """Of shape (SETS, batch, SIDE)."""
        return _floats(self._vectors / _SCALE)

    def expected(self) -> Floats:
        """All products, by whole numbers alone: no float takes part before the last division."""
        sums = np.einsum("nij,snj->sni", self._matrices, self._vectors, dtype=np.int64)
        return _floats(sums / _SCALE**2)


def _floats(array: npt.NDArray[Any]) -> Floats:
    """Without loss: see above."""
    floats: Floats = array.astype(np.float32)
    return floats


def poison(products: Any) -> None:
    """Before they are written: what then does not come is noticed."""
    products[...] = _POISON


def first_wrong(products: Floats, expected: Floats, batch: int) -> str | None:
    """In words; None: every bit is right. `batch` is its number."""
    differing = np.argwhere(products.view(np.uint32) != expected.view(np.uint32))
    if not len(differing):
        return None
    vector, row = differing[0]
    return (
        f"batch {batch}: element {row} of the product of vector {vector} is {products[vector, row]}, not "
        f"{expected[vector, row]}; of {products.size} elements {len(differing)} are wrong"
    )

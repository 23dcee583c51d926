"""Which parameters there are, where they lie, and what they must be: the same on all ranks, without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ACKNOWLEDGED", "COPIES", "RATE", "Floats", "Plan", "copy_name"]

Floats = npt.NDArray[np.float32]

COPIES = 2  # of the model at each reader; also the slots, on its board, of their notifications
ACKNOWLEDGED = 0  # first slot of the trainer's board; reader r has slot ACKNOWLEDGED + r
RATE = 0.125  # of learning
# Initial values and gradients are multiples of 2**-6 below 2**0, rates a power of two: sums of thousands of versions are
# exact in float32, in whatever order they are made.
_GRAIN = np.float32(2.0**-6)
_LEVELS = 64


def copy_name(version: int) -> str:
    """Under which a reader shares the copy that this version goes to."""
    return f"weights {version % COPIES}"


@dataclass(frozen=True)
class Plan:
    layers: int
    width: int
    versions: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of each layer a matrix and a bias, as torch.nn.Linear has them."""
        return [(self.width, self.width), (self.width,)] * self.layers

    @property
    def parameters(self) -> int:
        """How many numbers."""
        return self.layers * self.width * (self.width + 1)

    @property
    def nbytes(self) -> int:
        return 4 * self.parameters

    def places(self) -> Iterator[slice]:
        """Of each parameter in a copy, flat."""
        first = 0
        for shape in self.shapes:
            count = int(np.prod(shape))
            yield slice(first, first + count)
            first += count

    def gradients(self, version: int) -> Floats:
        """That lead to this version, of all parameters, flat; those of version 0 are its values."""
        mixed = np.arange(self.parameters, dtype=np.uint32) * np.uint32(2654435761)
        mixed ^= np.uint32((version + 1) * 2246822519 & 0xFFFFFFFF)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(3266489917)
        levels = (mixed >> np.uint32(8)) % np.uint32(_LEVELS)
        values: Floats = (levels.astype(np.float32) - np.float32(_LEVELS // 2)) * _GRAIN
        return values

    def reference(self) -> Iterator[Floats]:
        """Version 1 and those that follow, each in the array of the one before."""
        values = self.gradients(0)
        for version in range(1, self.versions + 1):
            values -= np.float32(RATE) * self.gradients(version)
            yield values

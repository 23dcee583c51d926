"""The patterns: they expose stuck bits, misplaced bytes and other faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
# (random numbers, present bytes, offset in the memory) -> new bytes.
Pattern: TypeAlias = Callable[[np.random.Generator, Bytes, int], Bytes]


def walking_ones(random: np.random.Generator, present: Bytes, offset: int) -> Bytes:
    """One bit per byte, the next bit in the next byte: finds stuck bits and bits that follow their neighbour."""
    del offset
    places = (np.arange(present.size) + random.integers(8)) % 8
    ones: Bytes = np.left_shift(np.uint8(1), places.astype(np.uint8))
    return ones


def address_in_word(random: np.random.Generator, present: Bytes, offset: int) -> Bytes:
    """Each 8 bytes hold their own offset: misplaced data shows where it belongs."""
    del random
    first = offset // 8 * 8
    words = np.arange(first, offset + present.size + 8, 8, dtype="<u8")
    content: Bytes = words.view(np.uint8)[offset - first :][: present.size].copy()
    return content


def random_bytes(random: np.random.Generator, present: Bytes, offset: int) -> Bytes:
    del offset
    return random.integers(0, 256, present.size, np.uint8)


def inverse(random: np.random.Generator, present: Bytes, offset: int) -> Bytes:
    """Every bit changes, which exposes bytes that were not written."""
    del random, offset
    return np.invert(present)


PATTERNS: Mapping[str, Pattern] = {
    "walking ones": walking_ones,
    "address in word": address_in_word,
    "random": random_bytes,
    "inverse": inverse,
}

"""Which requests there are, and which blocks each has on either side: the same on both ranks, without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LANES", "STOP", "Blocks", "Plan", "Request"]

Blocks = npt.NDArray[np.int32]  # a block table: numbers of blocks, in the order of the prompt

LANES = 8  # requests under way at most
STOP = -1  # the number of no request: the lane ends
_SHARE = 16  # of the cache, that the longest request has
_AT_ONCE = 16 << 20  # bytes that are filled or checked at a time


@dataclass(frozen=True)
class Request:
    number: int
    computed: Blocks  # of the prefill side's cache
    wanted: Blocks  # of the decode side's cache, as many


@dataclass(frozen=True)
class Plan:
    requests: int
    layers: int
    blocks: int  # of each layer
    block_nbytes: int  # a multiple of 4

    @property
    def longest(self) -> int:
        """Blocks of a request at most."""
        return max(1, self.blocks // _SHARE)

    @property
    def shape(self) -> tuple[int, int]:
        """Of a cache, as int32: a row is one block of one layer."""
        return self.layers * self.blocks, self.block_nbytes // 4

    @property
    def cache_nbytes(self) -> int:
        return self.layers * self.blocks * self.block_nbytes

    @property
    def rows_at_once(self) -> int:
        return max(1, _AT_ONCE // self.block_nbytes)

    def nbytes(self, request: Request) -> int:
        return len(request.wanted) * self.layers * self.block_nbytes

    def rows(self, blocks: Blocks) -> npt.NDArray[np.int64]:
        """Rows of the cache that these blocks have in all layers."""
        layers = np.arange(self.layers, dtype=np.int64)[:, None]
        return (layers * self.blocks + blocks).reshape(-1)

    def table(self, number: int) -> Blocks:
        """Of a request, on the prefill side. Tables share blocks here and there, as prompts that begin alike do."""
        random = np.random.default_rng([0, number])
        length = random.integers(1, self.longest, endpoint=True)
        return random.permutation(self.blocks)[:length].astype(np.int32)

    def laps(self) -> Iterator[list[Request]]:
        """All requests in order, cut where the decode side's cache is full; within a lap it has each block once."""
        lap: list[Request] = []
        free = self._shuffled(0)
        for number in range(self.requests):
            computed = self.table(number)
            if len(computed) > len(free):
                yield lap
                lap, free = [], self._shuffled(number)
            lap.append(Request(number, computed, free[: len(computed)]))
            free = free[len(computed) :]
        yield lap

    def _shuffled(self, number: int) -> Blocks:
        """All blocks of the decode side's cache."""
        random = np.random.default_rng([1, number])
        return random.permutation(self.blocks).astype(np.int32)

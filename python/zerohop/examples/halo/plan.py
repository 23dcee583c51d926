"""Which columns each rank has, and what is in them at the beginning and at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zerohop.demo.heat import Grid, Strip, fill_initial, reference

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    rows: int
    columns: int
    steps: int
    ranks: int

    def columns_of(self, rank: int) -> slice:
        first, end = (self.columns * edge // self.ranks for edge in (rank, rank + 1))
        return slice(first, end)

    def width(self, rank: int) -> int:
        columns = self.columns_of(rank)
        return int(columns.stop - columns.start)

    def shape(self, rank: int) -> tuple[int, int, int]:
        """Of a rank's arrays, for even and odd steps, each with a frame of one cell all round."""
        return 2, self.rows + 2, self.width(rank) + 2

    def initial(self, rank: int) -> Grid:
        """The rank's array at time zero, with its frame."""
        strip = Strip(0, self.rows, self.rows, self.columns)
        whole = np.empty(strip.shape, np.float32)
        fill_initial(whole, strip)
        columns = self.columns_of(rank)
        return whole[:, columns.start : columns.stop + 2]

    def reference(self, told: Callable[[int], None]) -> Grid:
        """What one process has after all steps, without the frame."""
        return reference(self.rows, self.columns, self.steps, told)[1:-1, 1:-1]

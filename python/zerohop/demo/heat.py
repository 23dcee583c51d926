"""The 2-D heat equation on a grid split by rows: initial state, one explicit Euler step, reference.

The grid is float32 with a frame of cells that stay at zero (cold edges), so every cell that changes has
four neighbours. A step is u' = u / 2 + (above + below + left + right) / 8, the scheme of Courant, Friedrichs
and Lewy (1928) at a diffusion number of 1/8. Each cell goes through the same operations in the same
order whatever rows are stepped together, and NumPy does not fuse them: a grid stepped in parts is equal to
one stepped whole in every bit, provided that the rows between the parts were exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Grid: TypeAlias = npt.NDArray[np.float32]

BLOCK_CELLS = 1 << 16  # 256 KiB of float32: a block and its neighbours stay in a core's cache
OLD_SHARE = np.float32(0.5)
NEIGHBOUR_SHARE = np.float32(0.125)


@dataclass(frozen=True)
class Strip:
    """The rows [first, first + rows) of a `total` x `columns` grid that one rank steps."""

    first: int
    rows: int
    total: int
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array that holds the strip with its frame of one cell all round."""
        return self.rows + 2, self.columns + 2

    @staticmethod
    def of_rank(rank: int, size: int, total: int, columns: int) -> Strip:
        first, end = (total * edge // size for edge in (rank, rank + 1))
        return Strip(first, end - first, total, columns)


def blocks(first: int, end: int, columns: int) -> Iterator[tuple[int, int]]:
    """[first, end) in pieces of at most BLOCK_CELLS cells, but of one row at least."""
    step = max(1, BLOCK_CELLS // columns)
    for top in range(first, end, step):
        yield top, min(top + step, end)


def fill_initial(grid: Grid, strip: Strip) -> None:
    """Sets `grid` (of shape `strip.shape`) to the state at time zero, frame included.

    Each cell gets a value in [0, 1) scrambled from its place in the whole grid, so a row that ends up in
    a wrong place, or is a step too old, cannot go unnoticed. The frame gets the rows beyond the strip, or
    zero at the edge of the whole grid.
    """
    grid[:, 0] = grid[:, -1] = 0
    column = np.arange(strip.columns, dtype=np.uint32) * np.uint32(2654435761)
    for row in range(strip.rows + 2):
        place = strip.first + row - 1
        if not 0 <= place < strip.total:
            grid[row] = 0
            continue
        mixed = column ^ np.uint32((place + 1) * 2246822519 & 0xFFFFFFFF)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(3266489917)
        grid[row, 1:-1] = (mixed >> np.uint32(8)) * np.float32(2**-24)


def step_rows(source: Grid, target: Grid, first: int, end: int) -> None:
    """Steps the rows [first, end) of `source` into `target`; both have a frame of one cell."""
    columns = source.shape[1] - 2
    scratch = np.empty((max(1, BLOCK_CELLS // columns), columns), np.float32)
    for top, bottom in blocks(first, end, columns):
        around = scratch[: bottom - top]
        new = target[top:bottom, 1:-1]
        np.add(source[top - 1 : bottom - 1, 1:-1], source[top + 1 : bottom + 1, 1:-1], out=around)
        np.add(around, source[top:bottom, :-2], out=around)
        np.add(around, source[top:bottom, 2:], out=around)
        np.multiply(around, NEIGHBOUR_SHARE, out=around)
        np.multiply(source[top:bottom, 1:-1], OLD_SHARE, out=new)
        np.add(new, around, out=new)


def reference(
    total: int, columns: int, steps: int, on_step: Callable[[int], None] = lambda step: None
) -> Grid:
    """The whole grid after `steps` steps in this one process, with its frame; holds two grids."""
    strip = Strip(0, total, total, columns)
    grids = [np.empty(strip.shape, np.float32) for _ in range(2)]
    for grid in grids:
        fill_initial(grid, strip)
    for step in range(steps):
        step_rows(grids[step % 2], grids[(step + 1) % 2], 1, total + 1)
        on_step(step + 1)
    return grids[steps % 2]


def differing_cells(left: Grid, right: Grid) -> int:
    """How many cells differ in any bit (so 0.0 and -0.0 differ, and equal NaNs do not)."""
    different = 0
    for top, bottom in blocks(0, left.shape[0], left.shape[1]):
        pair = (grid[top:bottom].view(np.uint32) for grid in (left, right))
        different += int(np.count_nonzero(np.not_equal(*pair)))
    return different

"""What lies where: two grids in each rank's part of a segment, and the slots by which halos are announced.

Step s leaves its state in grid s % 2; each rank then writes its outermost rows into the frames of its neighbours' grid s % 2,
and puts the value s into their slot (side, s % 2). Why two of each are enough, and no other credit is needed, is told in
zerohop.demo.halo; here it also holds because nobody but who sends an edge reads the halo beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerohop.demo.heat import Strip

__all__ = ["LEAST_ROWS", "LEFT", "SLOTS", "Plan", "Side"]

LEAST_ROWS = 2  # of a rank: its first row is not its last
SLOTS = 4
_FROM_ABOVE, _FROM_BELOW = 0, 2  # the first of two slots
_LINE = 32  # floats in 128 bytes: GPUs load such a line at once
LEFT = _LINE - 1  # where a row's frame is, so that its first cell begins a line


@dataclass(frozen=True)
class Side:
    """A neighbour: its rank, which row goes there and where it lands, and the first slots of its two pairs."""

    rank: int
    edge: int
    frame_there: int
    slot: int
    slot_there: int


@dataclass(frozen=True)
class Plan:
    side: int  # of the square grid, in cells
    ranks: int

    def strip(self, rank: int) -> Strip:
        return Strip.of_rank(rank, self.ranks, self.side, self.side)

    @property
    def pitch(self) -> int:
        """Floats from a row to the next: the frames left and right, the cells, and what fills lines up."""
        return -(-(LEFT + 1 + self.side + 1) // _LINE) * _LINE

    @property
    def row_nbytes(self) -> int:
        """Bytes of a halo."""
        return 4 * self.side

    def shape(self, rank: int) -> tuple[int, int, int]:
        """Of both grids of a rank, as floats."""
        return 2, self.strip(rank).rows + 2, self.pitch

    def nbytes(self, rank: int) -> int:
        grids, rows, pitch = self.shape(rank)
        return 4 * grids * rows * pitch

    def cells_at(self, rank: int, step: int, row: int) -> int:
        """Offset of the cells of a row, in bytes; row 0 is the frame above."""
        _, rows, pitch = self.shape(rank)
        return 4 * ((step % 2 * rows + row) * pitch + LEFT + 1)

    def above(self, rank: int) -> Side | None:
        if rank == 0:
            return None
        frame = self.strip(rank - 1).rows + 1
        return Side(rank - 1, 1, frame, slot=_FROM_ABOVE, slot_there=_FROM_BELOW)

    def below(self, rank: int) -> Side | None:
        if rank == self.ranks - 1:
            return None
        edge = self.strip(rank).rows
        return Side(rank + 1, edge, 0, slot=_FROM_BELOW, slot_there=_FROM_ABOVE)

    def sides(self, rank: int) -> list[Side]:
        return [side for side in (self.above(rank), self.below(rank)) if side is not None]

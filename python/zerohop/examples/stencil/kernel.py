"""All steps by one kernel, that exchanges halos from inside: the CPU launches it and waits for its end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.examples.place import PATIENCE_NS, Gpu
from zerohop.examples.stencil.face import Looked, Stepper
from zerohop.examples.stencil.plan import Plan, Side

if TYPE_CHECKING:
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["KernelStepper"]

# Of a block. Each has some ten loads under way, which one block on each multiprocessor makes enough for its memory; more
# would have fewer registers each, and more blocks to wait for.
_THREADS = 512
_TILE_ROWS = 8  # as stencil.cu has it
_FEWEST_BLOCKS = 3  # one for each edge, and one between them

_FIELD = np.dtype(
    [("grids", "u8", 2), *((name, "u4") for name in ("pitch", "columns", "rows", "steps"))]
)
_SIDE = np.dtype(
    [
        *(("queue", "u8"), ("from", "u8", 2), ("to", "u8", 2)),
        *((name, "u4") for name in ("row", "slot", "slot_there", "unused")),
    ]
)


class KernelStepper(Stepper):
    def __init__(self, world: World, segment: Segment, plan: Plan, place: Gpu) -> None:
        super().__init__(world, segment, plan)
        self._place, self._kernel = place, place.kernel("run")
        self._begin = place.bytes_of(segment.local).data.ptr
        self._blocks = self._choose_blocks()
        self._open = ExitStack()
        enter = self._open.enter_context
        self._board = enter(segment.device_board(device=place.device))
        rows = self.strip.rows
        sides = [
            self._side(side, row, enter)
            for side, row in ((plan.above(world.rank), 1), (plan.below(world.rank), rows))
        ]
        self._sides = place.xp.asarray(np.array(sides, _SIDE).view(np.uint64))
        self._pinned = place.xp.cuda.alloc_pinned_memory(4)  # GPUs reach it at the same address
        self._progress = np.frombuffer(self._pinned, np.uint32, 1)

    def _choose_blocks(self) -> int:
        """As many as run at once, for all of them wait for each other; but none that has no tile."""
        across, down = -(-self.plan.side // _THREADS), -(-(self.strip.rows - 2) // _TILE_ROWS)
        wanted = max(_FEWEST_BLOCKS, across * down + 2)
        return min(wanted, self._place.resident(self._kernel, _THREADS))

    def _side(self, side: Side | None, row: int, enter: Any) -> tuple[Any, ...]:
        """The Side of stencil.cu; with no neighbour nothing but the row counts."""
        if side is None:
            return 0, (0, 0), (0, 0), row, 0, 0, 0
        queue = enter(self.segment.device_queue(side.rank, hears="gpu", way="mapped"))
        plan, slots = self.plan, self.segment.slots
        edges = tuple(plan.cells_at(self.world.rank, turn, side.edge) for turn in range(2))
        frames = tuple(plan.cells_at(side.rank, turn, side.frame_there) for turn in range(2))
        return queue.address, edges, frames, row, slots[side.slot], slots[side.slot_there], 0

    def _field(self, steps: int) -> Any:
        plan, rank = self.plan, self.world.rank
        grids = tuple(self._begin + plan.cells_at(rank, turn, 0) for turn in range(2))
        values = grids, plan.pitch, plan.side, self.strip.rows, steps
        return np.void(np.array(values, _FIELD).tobytes())

    def run(self, steps: int, looked: Looked) -> None:
        ending = self._place.new_ending()
        self._progress[0] = 0
        arguments = (
            self._field(steps),
            self._sides,
            self._board.value,
            np.uint64(PATIENCE_NS),
            np.uint64(self._pinned.ptr),
            ending,
        )
        self._kernel((self._blocks,), (_THREADS,), arguments, stream=self._place.stream)
        what = "the kernel of all steps"
        self._place.await_kernel(what, ending, lambda: looked(int(self._progress[0])))

    def close(self) -> None:
        self._open.close()


assert (_FIELD.itemsize, _SIDE.itemsize) == (32, 56)

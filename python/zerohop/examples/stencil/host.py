"""Steps driven by the CPU: by NumPy, or by a launch for each step and halo in the stream of a GPU."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.demo.heat import Grid, step_rows
from zerohop.examples.failures import OutOfStep
from zerohop.examples.stencil.face import Looked, Stepper
from zerohop.examples.stencil.plan import LEFT, Plan, Side

if TYPE_CHECKING:
    from zerohop._core import Transfer
    from zerohop.examples.place import Gpu
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["CpuStepper", "LaunchStepper"]

THREADS = 256  # of a block, a column of cells each
TILE_ROWS = 8  # that a thread steps: as stencil.cu has it
_AHEAD = 64  # steps that the CPU is ahead of the GPU at most: enough to keep it busy


class _HostStepper(Stepper):
    def post(self, step: int, stream: Any = None) -> None:
        """Writes the edges of this step's state into the neighbours' frames."""
        for side in self.sides:
            self.segment.write_notify(
                side.rank,
                self.plan.cells_at(self.world.rank, step, side.edge),
                self.plan.cells_at(side.rank, step, side.frame_there),
                slot=side.slot_there + step % 2,
                value=step,
                nbytes=self.plan.row_nbytes,
                stream=stream,
            )

    def slot(self, side: Side, step: int) -> int:
        return self.segment.slots[side.slot + step % 2]

    def close(self) -> None:
        """Nothing is held."""


class CpuStepper(_HostStepper):
    def __init__(self, world: World, segment: Segment, plan: Plan) -> None:
        super().__init__(world, segment, plan)
        floats = segment.local.view(np.float32).reshape(plan.shape(world.rank))
        self._grids: Grid = floats[:, :, LEFT : LEFT + plan.side + 2]

    def run(self, steps: int, looked: Looked) -> None:
        last = self.strip.rows
        for step in range(1, steps + 1):
            source, target = self._grids[(step - 1) % 2], self._grids[step % 2]
            step_rows(source, target, 1, 2)
            step_rows(source, target, last, last + 1)
            self.post(step)  # so that they travel while the rows between them are stepped
            step_rows(source, target, 2, last)
            for side in self.sides:
                check(self.world.endpoint.wait_notify(self.slot(side, step)), step)
            self.segment.wait()  # the edges may be overwritten from here on
            looked(step)


class LaunchStepper(_HostStepper):
    """All in the order of one stream: edges, their way to the neighbours, the rows between, and the wait for halos."""

    def __init__(self, world: World, segment: Segment, plan: Plan, place: Gpu) -> None:
        super().__init__(world, segment, plan)
        self._place = place
        self._edges, self._between = place.kernel("edges"), place.kernel("between")
        cells = place.bytes_of(segment.local).view(np.float32).reshape(plan.shape(world.rank))
        self._grids = [cells[parity, :, LEFT + 1 :] for parity in range(2)]

    def run(self, steps: int, looked: Looked) -> None:
        waits: deque[tuple[int, Transfer]] = deque()
        stream, wait_notify = self._place.stream, self.world.endpoint.wait_notify
        for step in range(1, steps + 1):
            self._launch(self._edges, step, 2)
            self.post(step, stream)
            self._launch(self._between, step, -(-(self.strip.rows - 2) // TILE_ROWS))
            for side in self.sides:
                waits.append((step, wait_notify(self.slot(side, step), stream=stream)))
            while waits and waits[0][0] <= step - _AHEAD:
                _finish(waits)
            looked(max(0, step - _AHEAD))
        while waits:
            _finish(waits)
        self.segment.wait()
        stream.synchronize()

    def _launch(self, kernel: Any, step: int, rows: int) -> None:
        if rows == 0:
            return
        sizes = (self.plan.pitch, self.plan.side, self.strip.rows)
        arguments = (
            self._grids[(step - 1) % 2],
            self._grids[step % 2],
            *(np.uint32(size) for size in sizes),
        )
        grid = (-(-self.plan.side // THREADS), rows)
        kernel(grid, (THREADS,), arguments, stream=self._place.stream)


def _finish(waits: deque[tuple[int, Transfer]]) -> None:
    step, wait = waits.popleft()
    check(wait.wait(), step)


def check(value: int | None, step: int) -> None:
    """Of the notification of a halo."""
    if value != step:
        raise OutOfStep(f"got the halo of step {value} where that of step {step} is due")

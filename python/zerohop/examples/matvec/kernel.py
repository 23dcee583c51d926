"""Client and server that communicate from inside a kernel: the CPU launches it and waits for its end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.examples.failures import KernelFailed
from zerohop.examples.matvec.face import Client, Lap, Looked, Server
from zerohop.examples.matvec.host import take
from zerohop.examples.matvec.lanes import client_lanes, layout_of, server_lanes
from zerohop.examples.matvec.plan import MOST_BLOCKS, Plan
from zerohop.examples.matvec.problem import SIDE, Problem
from zerohop.examples.place import PATIENCE_NS, Gpu

if TYPE_CHECKING:
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["KernelClient", "KernelServer"]

# Vectors of a block at least. Fewer would be done a little sooner, but each block has a notification to wait for, and the
# client one to put.
_LEAST_VECTORS = 16
_REQUEST_THREADS = 256  # 16 bytes each: 32 vectors at once
_SERVE_THREADS = 512  # 16 vectors at once
_MATRIX_NBYTES = 4 * SIDE * SIDE
_STATIC_NBYTES = 1 << 10  # of shared memory that the header's calls have for themselves


class KernelServer(Server):
    """One kernel from the first batch to the last."""

    def __init__(self, world: World, segment: Segment, plan: Plan, place: Gpu) -> None:
        self._place, self._plan = place, plan
        server = world.rank - 1
        share = plan.share(server)
        matrices = Problem(plan.batch).matrices(share.start, share.stop).transpose(0, 2, 1)
        self._columns = place.xp.asarray(np.ascontiguousarray(matrices))
        self._kernel = place.kernel("serve")
        self._blocks = self._choose_blocks(len(share))
        segment.notify(0, plan.blocks_slot(server), self._blocks).wait()
        self._open = ExitStack()
        queue = self._open.enter_context(segment.device_queue(0, hears="gpu", way="mapped"))
        self._board = self._open.enter_context(segment.device_board(device=place.device))
        lanes = server_lanes(plan, segment.slots, server, queue.address, self._blocks)
        self._lanes = place.xp.asarray(lanes.view(np.uint64))
        self._ending = place.new_ending()

    def _choose_blocks(self, vectors: int) -> int:
        """All of them run at once, each with room for as many of its matrices as a block can have."""
        wanted = max(1, min(MOST_BLOCKS, vectors // _LEAST_VECTORS))
        largest = (self._place.shared_nbytes() - _STATIC_NBYTES) // _MATRIX_NBYTES
        self._room = min(-(-vectors // wanted), largest)
        self._shared = self._room * _MATRIX_NBYTES
        self._kernel.max_dynamic_shared_size_bytes = self._shared
        return min(wanted, self._place.resident(self._kernel, _SERVE_THREADS, self._shared))

    def serve(self) -> None:
        arguments = (
            self._lanes,
            layout_of(self._plan),
            self._board.value,
            self._columns,
            np.uint32(self._room),
            np.uint64(PATIENCE_NS),
            self._ending,
        )
        self._kernel(
            (self._blocks,),
            (_SERVE_THREADS,),
            arguments,
            stream=self._place.stream,
            shared_mem=self._shared,
        )
        self._place.await_kernel("the server's kernel", self._ending)

    def close(self) -> None:
        self._open.close()


class KernelClient(Client):
    """A kernel for each lap. Times are those of the GPU's clock, so without the launch."""

    def __init__(self, world: World, segment: Segment, plan: Plan, place: Gpu) -> None:
        super().__init__(segment, plan)
        self._place, self._next = place, 0
        most = tuple(range(1, MOST_BLOCKS + 1))
        self._blocks = [
            take(world, segment, plan.blocks_slot(server), most) for server in range(plan.servers)
        ]
        self._kernel = place.kernel("request")
        self._grid = sum(self._blocks)
        resident = place.resident(self._kernel, _REQUEST_THREADS)
        if self._grid > resident:
            raise KernelFailed(
                f"{plan.servers} servers have {self._grid} blocks, of which {place.device} runs {resident} at once: "
                "use fewer --ranks"
            )
        self._open = ExitStack()
        enter = self._open.enter_context
        queues = [
            enter(segment.device_queue(1 + server, hears="gpu", way="mapped")).address
            for server in range(plan.servers)
        ]
        self._board = enter(segment.device_board(device=place.device))
        lanes = client_lanes(plan, segment.slots, queues, self._blocks)
        self._lanes = place.xp.asarray(lanes.view(np.uint64))

    def send(self, first: int, count: int, window: int, looked: Looked) -> Lap:
        xp, ending = self._place.xp, self._place.new_ending()
        begun, ended = (xp.zeros((count, self._grid), "uint64") for _ in range(2))
        self._place.finish()  # the zeros are there: they were not put into that stream
        arguments = (
            self._lanes,
            layout_of(self.plan),
            self._board.value,
            *(np.uint32(word) for word in (first, count, window)),
            *(begun, ended, np.uint64(PATIENCE_NS), ending),
        )
        self._kernel((self._grid,), (_REQUEST_THREADS,), arguments, stream=self._place.stream)
        self._place.await_kernel("the client's kernel", ending)
        looked(count)
        self._next = first + count
        return self._lap(begun, ended, window)

    def _lap(self, begun: Any, ended: Any, window: int) -> Lap:
        begins = self._place.to_host(begun).min(axis=1).astype(np.int64)
        ends = self._place.to_host(ended).max(axis=1).astype(np.int64)
        lap = Lap(float(ends.max() - begins.min()) * 1e-9)
        if window == 1:
            lap.latencies = [float(took) * 1e-9 for took in ends - begins]
        return lap

    def close(self) -> None:
        self.stop(self._next, self._blocks)
        self._open.close()

"""Copies within this rank: by NumPy in the host's memory, by the way that leads back here where a GPU is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop._world.bound import Bound
from zerohop.collectives.blocks import Block, Flat
from zerohop.collectives.deadline import Deadline

if TYPE_CHECKING:
    from zerohop._world.membership import Roster

__all__ = ["Copier"]


class Copier:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._byte: Any = None  # for wait_for()

    def copy(self, target: Block, source: Block, deadline: Deadline) -> None:
        """Of as many bytes, which do not overlap unless they are the same. Raises TransferTimeout, CudaError."""
        if source.nbytes == 0 or target.is_at(source):
            return
        if target.on_host and source.on_host:
            target.bytes[:] = source.bytes
            return
        roster = self._roster
        whole = roster.own_endpoint().register(source.flat.array).reshape(-1)
        back = roster.peer(roster.rank, Bound(deadline.left))
        back.write(whole[source.elements], target.memory.remote).wait(deadline.left)

    def fill(self, target: Block, payload: bytes, deadline: Deadline) -> None:
        """With what has come along with a message."""
        source = np.frombuffer(payload, np.uint8)
        if target.on_host:
            target.bytes[:] = source
        elif target.nbytes:
            between = self.scratch(target.nbytes, target, for_gpus=True)
            between.bytes[:] = source
            self.copy(target, between, deadline)

    def scratch(self, nbytes: int, like: Block, *, for_gpus: bool) -> Block:
        """Memory of the host, of the same dtype. for_gpus: copies between it and GPUs are to come."""
        endpoint, flat = self._roster.endpoint, like.flat
        if for_gpus and nbytes:
            return Flat(
                endpoint, endpoint.empty(nbytes // flat.itemsize, flat.dtype), "scratch"
            ).whole()
        scratch = Flat(endpoint, np.empty(nbytes, np.uint8), "scratch")
        scratch.dtype, scratch.itemsize = flat.dtype, flat.itemsize
        return scratch.whole()

    def wait_for(self, stream: Any, deadline: Deadline) -> None:
        """Until a stream of a GPU has done what it was given so far. Raises TransferTimeout, CudaError, TypeError."""
        roster = self._roster
        if self._byte is None:
            self._byte = roster.endpoint.empty(1)
        back = roster.peer(roster.rank, Bound(deadline.left))
        # A write between arrays of the host waits for the stream by itself.
        source = np.zeros(1, np.uint8)
        back.write(source, self._byte.remote, stream=stream, timeout=deadline.left).wait(
            deadline.left
        )

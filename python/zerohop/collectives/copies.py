"""Copies within this rank, by NumPy in host memory, by the rank's Peer to itself if a GPU is involved; its scratch memory, and its GPUs' reductions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop.collectives.blocks import Block, Flat
from zerohop.errors import CudaError, RouteUnavailable

if TYPE_CHECKING:
    from zerohop._world.membership import Membership


class Copier:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._byte: Any = None  # used by wait_for()
        self._kept: dict[str, Any] = {}  # by device, used by kept_scratch()
        self._reducers: dict[str, _core.GpuReducer | None] = {}

    def copy(self, target: Block, source: Block, deadline: Deadline) -> None:
        """Copies a block of the same size; the two are the same memory or do not overlap. Raises TransferTimeout, CudaError."""
        if source.nbytes == 0 or target.is_at(source):
            return
        if target.on_host and source.on_host:
            target.bytes[:] = source.bytes
            return
        membership = self._membership
        whole = membership.own_endpoint().register(source.flat.array).reshape(-1)
        back = membership.peer(membership.rank, deadline)
        back.write(whole[source.elements], target.memory.remote).wait(deadline.left)

    def fill(self, target: Block, payload: bytes, deadline: Deadline) -> None:
        """Copies the payload of a message."""
        source = np.frombuffer(payload, np.uint8)
        if target.on_host:
            target.bytes[:] = source
        elif target.nbytes:
            between = self.scratch(target.nbytes, target, for_gpus=True)
            between.bytes[:] = source
            self.copy(target, between, deadline)

    def scratch(self, nbytes: int, like: Block, *, for_gpus: bool) -> Block:
        """Host memory of the same dtype. for_gpus: it will be copied to or from GPUs."""
        endpoint, flat = self._membership.endpoint, like.flat
        if for_gpus and nbytes:
            return Flat(
                endpoint, endpoint.empty(nbytes // flat.itemsize, flat.dtype), "scratch"
            ).whole()
        scratch = Flat(endpoint, np.empty(nbytes, np.uint8), "scratch")
        scratch.dtype, scratch.itemsize = flat.dtype, flat.itemsize
        return scratch.whole()

    def kept_scratch(self, nbytes: int, like: Block, device: str = "cpu") -> Block:
        """As scratch(), in registered memory that the next call uses again. device: "cpu", or a GPU with a reducer."""
        endpoint, flat = self._membership.endpoint, like.flat
        kept = self._kept.get(device)
        if kept is None or kept.nbytes < nbytes:
            whole = -(-nbytes // 16) * 16  # so that elements of any type fit
            kept = self._kept[device] = endpoint.empty(max(whole, 4096), device=device)
        return Block(Flat(endpoint, kept.view(flat.dtype), "scratch"), 0, nbytes)

    def reducer(self, device: str) -> _core.GpuReducer | None:
        """None: CPUs reduce what is in that memory."""
        if device == "cpu":
            return None
        if device not in self._reducers:
            endpoint, made = self._membership.endpoint, None
            if self._membership.size <= _core.GpuReducer.INPUTS:
                with suppress(RouteUnavailable, CudaError):  # built without kernels; none for it
                    made = _core.GpuReducer(endpoint, endpoint.empty(1, device=device))
            self._reducers[device] = made
        return self._reducers[device]

    def wait_for(self, stream: Any, deadline: Deadline) -> None:
        """Waits until a GPU stream has done its work so far. Raises TransferTimeout, CudaError, TypeError."""
        membership = self._membership
        if self._byte is None:
            self._byte = membership.endpoint.empty(1)
        back = membership.peer(membership.rank, deadline)
        # A write between host arrays waits for the stream.
        source = np.zeros(1, np.uint8)
        back.write(source, self._byte.remote, stream=stream, timeout=deadline.left).wait(
            deadline.left
        )

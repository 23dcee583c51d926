"""Copies within this rank to and from memory that a CPU does not reach, by the rank's Peer to itself; its room for calls, and its GPUs' reductions."""

from __future__ import annotations

from collections.abc import Iterable
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
        self._kept: dict[str, Any] = {}  # by device, used by room()
        self._reducers: dict[str, _core.GpuReducer | None] = {}

    def copy(self, target: Block, source: Block, deadline: Deadline) -> None:
        """Copies a block of the same size; the two are the same memory or do not overlap. Raises TransferTimeout, CudaError."""
        membership = self._membership
        whole = membership.own_endpoint().register(source.flat.array).reshape(-1).view("uint8")
        back = membership.peer(membership.rank, deadline)
        back.write(whole[source.range], target.memory.remote).wait(deadline.left)

    def fill(self, target: Block, payload: bytes, deadline: Deadline) -> None:
        """Copies the payload of a message."""
        endpoint = self._membership.endpoint
        between = endpoint.empty(len(payload))
        np.asarray(between)[:] = np.frombuffer(payload, np.uint8)
        self.copy(target, Flat(endpoint, between, "room").whole(), deadline)

    def room(self, nbytes: int, device: str) -> Flat:
        """Registered memory, which the next call uses again. device: "cpu", or a GPU with a reducer."""
        endpoint, kept = self._membership.endpoint, self._kept.get(device)
        if kept is None or kept.nbytes < nbytes:
            kept = self._kept[device] = endpoint.empty(max(nbytes, 4096), device=device)
        return Flat(endpoint, kept, "room")

    def reducer_of(self, flats: Iterable[Flat]) -> _core.GpuReducer | None:
        """Of the GPU in whose memory all of them are. None: CPUs reduce them."""
        devices = {flat.device for flat in flats}
        return self.reducer(*devices) if len(devices) == 1 else None

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

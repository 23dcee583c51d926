"""Halo columns: written into the neighbours' arrays, each with a notification of its step behind it.

Two arrays and two slots a side are enough, as zerohop.demo.halo explains: a neighbour that has notified of step s + 1 reads
the halo of step s no more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerohop.examples.failures import OutOfStep

if TYPE_CHECKING:
    from zerohop._core import Memory, Peer, RemoteMemory, Transfer
    from zerohop.world import World

__all__ = ["Exchange"]

_NAME = "halo arrays"
_FROM_LEFT, _FROM_RIGHT = 0, 2  # first of two slots, for even and odd steps
_AHEAD = 64  # steps that the CPU is ahead of the GPU at most


@dataclass(frozen=True)
class Side:
    """A neighbour. Columns: of the own array that goes there, and of its array where that arrives."""

    peer: Peer
    there: RemoteMemory
    edge: int
    halo: int
    slot_there: int
    slot_here: int


class Exchange:
    """arrays: two, of even and odd steps. stream: of the GPU they lie on, None of the host's."""

    def __init__(self, world: World, arrays: Memory, stream: Any = None) -> None:
        self._endpoint, self._arrays, self._stream = world.endpoint, arrays, stream
        self._endpoint.share(_NAME, arrays)
        self._sides = []
        if world.rank > 0:
            left = world.peer(world.rank - 1)
            there = left.lookup(_NAME)
            self._sides.append(Side(left, there, 1, -1, _FROM_RIGHT, _FROM_LEFT))
        if world.rank < world.size - 1:
            right = world.peer(world.rank + 1)
            there = right.lookup(_NAME)
            self._sides.append(Side(right, there, -2, 0, _FROM_LEFT, _FROM_RIGHT))
        self._under_way: deque[tuple[int, list[Transfer], list[Transfer]]] = deque()

    def route(self) -> str:
        """Empty without neighbours."""
        if not self._sides:
            return ""
        side = self._sides[0]
        return str(side.peer.route(self._arrays[0, :, side.edge], side.there[0, :, side.halo]))

    def swap(self, step: int) -> None:
        """The neighbours get this step's edges, and this rank theirs: now, or in the order of the stream.

        Raises OutOfStep, PeerLost, TransferTimeout.
        """
        written = [self._write(side, step) for side in self._sides]
        slots = [side.slot_here + step % 2 for side in self._sides]
        if self._stream is None:
            for slot in slots:
                check(self._endpoint.wait_notify(slot), step)
            for transfer in written:
                transfer.wait()
            return
        taken = [self._endpoint.wait_notify(slot, stream=self._stream) for slot in slots]
        self._under_way.append((step, written, taken))
        while self._under_way[0][0] <= step - _AHEAD:
            self._finish_one()

    def _write(self, side: Side, step: int) -> Transfer:
        parity = step % 2
        return side.peer.write(
            self._arrays[parity, :, side.edge],
            side.there[parity, :, side.halo],
            notify=(side.slot_there + parity, step),
            stream=self._stream,
        )

    def finish(self) -> None:
        """Returns when all that the stream was given is done."""
        while self._under_way:
            self._finish_one()
        if self._stream is not None:
            self._stream.synchronize()

    def _finish_one(self) -> None:
        step, written, taken = self._under_way.popleft()
        for transfer in taken:
            check(transfer.wait(), step)
        for transfer in written:
            transfer.wait()


def check(value: int | None, step: int) -> None:
    if value != step:
        raise OutOfStep(f"got the halo of step {value} where that of step {step} is due")

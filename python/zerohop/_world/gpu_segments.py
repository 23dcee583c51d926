"""Segments of GPU memory, for collectives that kernels carry out in place (cpp/engine/collective/group_part.hpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.parts import OwnPart
from zerohop.errors import CudaError, Error, RouteUnavailable


class Ranks(Protocol):
    """Of a World: its Membership."""

    rank: int
    size: int

    def whole_rank(self, rank: int) -> int: ...


class Far(Protocol):
    """Another rank's part: a FarPart."""

    peer: _core.Peer
    memory: _core.RemoteMemory


Find = Callable[[int, Deadline], "Far | None"]  # as Parts.find()


class GpuSegment:
    """One of them: as long as its Segment is open."""

    def __init__(self, own: OwnPart, find: Find) -> None:
        self._own, self._find = own, find
        # Of each World whose kernels reach it; None: they cannot.
        self._reached: WeakKeyDictionary[Ranks, _core.GroupPart | None] = WeakKeyDictionary()

    def contains(self, view: Any) -> bool:
        return self._own.offset(view) is not None

    def reached_by(self, ranks: Ranks, deadline: Deadline) -> _core.GroupPart | None:
        """The parts of the ranks of that World. None: kernels cannot reach them, or a rank has yet to make its part."""
        if ranks in self._reached:
            return self._reached[ranks]
        try:
            part = self._meet(ranks, deadline)
        except (RouteUnavailable, CudaError):
            self._reached[ranks] = None
            return None
        except Error:  # a rank is lost: the call raises it
            return None
        if part is not None:
            self._reached[ranks] = part
        return part

    def _meet(self, ranks: Ranks, deadline: Deadline) -> _core.GroupPart | None:
        made = _core.GroupPart(ranks.rank, ranks.size, self._own.bytes)
        for rank in range(ranks.size):
            if rank != ranks.rank:
                far = self._find(ranks.whole_rank(rank), deadline)
                if far is None:
                    return None
                made.meet(rank, far.peer, far.memory, deadline.left)
        return made

    def close(self) -> None:
        """Kernels that are under way keep what they use."""
        self._reached.clear()


class GpuSegments:
    """Those of a World that are open. One thread makes and closes them, and others may look."""

    def __init__(self) -> None:
        self._all: tuple[ref[GpuSegment], ...] = ()

    def add(self, own: OwnPart, find: Find) -> GpuSegment:
        """Its owner keeps it."""
        segment = GpuSegment(own, find)
        self._all = (*(each for each in self._all if each() is not None), ref(segment))
        return segment

    def remove(self, segment: GpuSegment) -> None:
        self._all = tuple(each for each in self._all if each() is not segment)
        segment.close()

    def part_with(self, view: Any, ranks: Ranks, deadline: Deadline) -> _core.GroupPart | None:
        """Of the segment in which that array lies; None: of none, or see GpuSegment.reached_by()."""
        for each in self._all:
            segment = each()
            if segment is not None and segment.contains(view):
                return segment.reached_by(ranks, deadline)
        return None

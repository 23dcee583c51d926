"""Segments of GPU memory, for collectives that kernels carry out in place (cpp/engine/collective/group_part.hpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop.errors import CudaError, Error, RouteUnavailable

if TYPE_CHECKING:
    from zerohop._world.far_parts import Parts
    from zerohop._world.membership import Membership
    from zerohop._world.parts import OwnPart


class GpuSegment:
    """One of them: as long as its Segment is open."""

    def __init__(self, own: OwnPart, parts: Parts) -> None:
        self._own, self._parts = own, parts
        # Of each World whose kernels reach it; None: they cannot.
        self._reached: WeakKeyDictionary[Membership, _core.GroupPart | None] = WeakKeyDictionary()

    def contains(self, view: Any) -> bool:
        return self._own.offset(view) is not None

    def reached_by(self, membership: Membership, deadline: Deadline) -> _core.GroupPart | None:
        """The parts of the ranks of that World. None: kernels cannot reach them, or a rank has yet to make its part."""
        if membership in self._reached:
            return self._reached[membership]
        try:
            part = self._meet(membership, deadline)
        except (RouteUnavailable, CudaError):
            self._reached[membership] = None
            return None
        except Error:  # a rank is lost: the call raises it
            return None
        if part is not None:
            self._reached[membership] = part
        return part

    def _meet(self, membership: Membership, deadline: Deadline) -> _core.GroupPart | None:
        made = _core.GroupPart(membership.rank, membership.size, self._own.bytes)
        for rank in range(membership.size):
            if rank != membership.rank:
                far = self._parts.find(membership.whole_rank(rank), deadline)
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

    def add(self, own: OwnPart, parts: Parts) -> GpuSegment:
        """Its owner keeps it."""
        segment = GpuSegment(own, parts)
        self._all = (*(each for each in self._all if each() is not None), ref(segment))
        return segment

    def remove(self, segment: GpuSegment) -> None:
        self._all = tuple(each for each in self._all if each() is not segment)
        segment.close()

    def part_with(
        self, view: Any, membership: Membership, deadline: Deadline
    ) -> _core.GroupPart | None:
        """Of the segment in which that array lies; None: of none, or see GpuSegment.reached_by()."""
        for each in self._all:
            segment = each()
            if segment is not None and segment.contains(view):
                return segment.reached_by(membership, deadline)
        return None

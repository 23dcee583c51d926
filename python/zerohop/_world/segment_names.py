"""The names of a World's segments."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from zerohop.segment import Segment


class SegmentNames:
    """world: its name, for messages."""

    def __init__(self, world: str) -> None:
        self._world = world
        # The latest of each name.
        self._segments: WeakValueDictionary[str, Segment] = WeakValueDictionary()
        self._made = 0  # how many

    def choose(self, name: str | None) -> str:
        """The given name, if no open segment has it (else ValueError); without one the same number on all ranks."""
        if name is None:
            number = self._made
            while self._is_taken(str(number)):
                number += 1
            return str(number)
        if isinstance(name, str) and self._is_taken(name):
            raise ValueError(
                f"the World {self._world!r} has a segment {name!r} already: close that one first, or use another name"
            )
        return name

    def add(self, segment: Segment) -> None:
        self._segments[segment.name] = segment
        self._made += 1

    def _is_taken(self, name: str) -> bool:
        segment = self._segments.get(name)
        return segment is not None and not segment.closed

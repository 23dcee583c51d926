"""This rank's part of a Segment: memory that is made, or an array that is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerohop import _core
from zerohop._world.spans import Span

if TYPE_CHECKING:
    from zerohop.endpoint import Endpoint

__all__ = ["OwnPart"]


class OwnPart:
    """Registered memory of this rank: `bytes` as uint8, `words` as uint64 where atomics can be (else None).

    local: what the program works with: a NumPy array, on a GPU the Memory (DLPack), or the array that it gave.
    """

    def __init__(self, endpoint: Endpoint, memory: Any, dtype: Any, device: str) -> None:
        if hasattr(memory, "__index__") and not hasattr(memory, "__dlpack__"):
            self.bytes, self.local = _made(endpoint, int(memory), dtype, device)
        else:
            self.bytes, self.local = _given(endpoint, memory), memory
        self._span = Span(self.bytes)
        self.address, self.nbytes = self._span.address, self._span.nbytes
        words = self._span.words()
        self.words = None if words is None else endpoint.register(words)

    def registered_with(self, endpoint: Endpoint) -> _core.Memory:
        """The same bytes for another Endpoint's transfers."""
        return endpoint.register(self._span.bytes())

    def offset(self, span: Span) -> int | None:
        """Where in this part an array lies; None: not in it."""
        begin = span.address - self.address
        inside = begin >= 0 and begin + span.nbytes <= self.nbytes
        return begin if inside and span.device == self._span.device else None

    def close(self) -> None:
        if self.words is not None:
            self.words.close()
        self.bytes.close()


def _made(endpoint: Endpoint, nbytes: int, dtype: Any, device: str) -> tuple[_core.Memory, Any]:
    if nbytes < 0:
        raise ValueError(f"a segment has no negative size such as {nbytes}")
    made = endpoint.empty(nbytes, "uint8", device)
    local = made.view(dtype)
    if local.device != "cpu":
        return made, local
    import numpy as np

    return made, np.asarray(local)


def _given(endpoint: Endpoint, array: Any) -> _core.Memory:
    span = Span(array)
    if not span.writable:
        raise ValueError("a segment is written by other ranks: give a writable array")
    return endpoint.register(span.bytes())

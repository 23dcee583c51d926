"""This rank's part of a Segment, new or given, and views of arrays as uint8 or uint64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerohop import _core

if TYPE_CHECKING:
    from zerohop.endpoint import Endpoint

_WORD = 8  # bytes


class Span:
    """The memory of a contiguous array. It keeps the array alive.

    Raises TypeError (not an array), ValueError (gaps between the elements).
    """

    def __init__(self, array: Any) -> None:
        # Memory knows its address; access as a GPU array would first wait for the default stream.
        self._view = array if isinstance(array, _core.Memory) else _core.ArrayView(array)
        if not self._view.contiguous:
            raise ValueError(
                "a segment moves bytes without gaps: make the array contiguous (numpy.ascontiguousarray, "
                "tensor.contiguous())"
            )
        view = self._view
        self.address, self.nbytes, self.device = view.address, view.nbytes, view.device

    @property
    def writable(self) -> bool:
        return self._view.writable

    @property
    def registered(self) -> _core.Memory | None:
        """All of it as uint8 with one axis, with its registration; None: it has none."""
        if not isinstance(self._view, _core.Memory):
            return None
        return self._view.reshape(-1).view("uint8")

    def bytes(self) -> _core.ArrayView:
        """All of it as an array of uint8 with one axis, which a transfer registers."""
        return self._array().reshape(-1).view("uint8")

    def words(self) -> _core.ArrayView | None:
        """The whole uint64 elements in it, for atomics; None if there are none.

        They need host memory that begins at a multiple of 8 bytes.
        """
        if self.device != "cpu" or self.address % _WORD or self.nbytes < _WORD:
            return None
        return self.bytes()[: self.nbytes // _WORD * _WORD].view("uint64")

    def _array(self) -> _core.ArrayView:
        return _core.ArrayView(self._view) if isinstance(self._view, _core.Memory) else self._view


class OwnPart:
    """Registered memory of this rank: `bytes` as uint8, `words` as uint64 if atomics are possible (else None).

    local: the program's view: a NumPy array, on a GPU the Memory (DLPack), or the given array.
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
        """The same bytes, registered for another Endpoint's transfers."""
        return endpoint.register(self._span.bytes())

    @property
    def on_gpu(self) -> bool:
        return self._span.device != "cpu"

    def offset(self, span: Span | _core.ArrayView) -> int | None:
        """The offset of a contiguous array in this part; None: it is not in it."""
        begin = span.address - self.address
        inside = begin >= 0 and begin + span.nbytes <= self.nbytes
        return begin if inside and span.device == self._span.device else None

    def close(self) -> None:
        if self.words is not None:
            self.words.close()
        self.bytes.close()


def _made(endpoint: Endpoint, nbytes: int, dtype: Any, device: str) -> tuple[_core.Memory, Any]:
    if nbytes < 0:
        raise ValueError(f"the size of a segment cannot be negative, such as {nbytes}")
    made = endpoint.empty(nbytes, "uint8", device)
    local = made.view(dtype)
    if local.device != "cpu":
        return made, local
    import numpy as np

    return made, np.asarray(local)


def _given(endpoint: Endpoint, array: Any) -> _core.Memory:
    span = Span(array)
    if not span.writable:
        raise ValueError("other ranks write to a segment: give a writable array")
    return endpoint.register(span.bytes())

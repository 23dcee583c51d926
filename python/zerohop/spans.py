"""Arrays as plain bytes: the same memory as uint8, or as uint64, without a copy."""

from __future__ import annotations

from typing import Any

from zerohop import _core

__all__ = ["Span", "host_words"]


class Span:
    """Where a contiguous array lies. Holding it keeps the array alive.

    Raises TypeError (no array), ValueError (gaps between the elements; on a GPU: elements other than bytes).
    """

    def __init__(self, array: Any) -> None:
        # Memory says it all by itself; as an array of a GPU it would first wait for the default stream.
        view = array if isinstance(array, _core.Memory) else _core.ArrayView(array)
        if not view.contiguous:
            raise ValueError(
                "a segment moves bytes without gaps: make the array contiguous (numpy.ascontiguousarray, "
                "tensor.contiguous())"
            )
        self._array, self._view = array, view
        self.address, self.nbytes, self.device = view.address, view.nbytes, view.device

    @property
    def writable(self) -> bool:
        return self._view.writable

    @property
    def is_memory(self) -> bool:
        """Whether it is registered, as bytes with one axis."""
        one_axis = len(self._view.shape) == 1
        return isinstance(self._array, _core.Memory) and self._view.dtype == "uint8" and one_axis

    def bytes(self) -> Any:
        """An array of uint8 with one axis, as transfers and register() take it."""
        if self.device == "cpu":
            return _typed(self, "|u1", self.nbytes)
        if self._view.dtype != "uint8" or len(self._view.shape) != 1:
            raise ValueError(
                f"an array on {self.device} must be one axis of uint8 here, not {self._view.shape} of "
                f"{self._view.dtype}: pass array.reshape(-1).view(torch.uint8)"
            )
        return self._array


def host_words(span: Span) -> Any:
    """The whole uint64 elements in a span, of which atomics need one; None where there is none.

    Of host memory that begins at a multiple of 8 bytes.
    """
    if span.device != "cpu" or span.address % 8 or span.nbytes < 8:
        return None
    return _typed(span, "=u8", span.nbytes // 8)


class _Interface:
    """What numpy.asarray() makes an array of; that array keeps it, and so the span, alive."""

    def __init__(self, span: Span, kind: str, count: int) -> None:
        self._span = span
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": kind,
            "data": (span.address, not span.writable),
        }


def _typed(span: Span, kind: str, count: int) -> Any:
    import numpy as np

    if count == 0:
        return np.empty(0, kind)
    return np.asarray(_Interface(span, np.dtype(kind).str, count))

"""Arrays as plain bytes: the same memory as uint8, or as uint64, without a copy."""

from __future__ import annotations

from typing import Any

from zerohop import _core

__all__ = ["Span"]

_WORD = 8  # bytes


class Span:
    """Where a contiguous array lies. Holding it keeps the array alive.

    Raises TypeError (no array), ValueError (gaps between the elements).
    """

    def __init__(self, array: Any) -> None:
        # Memory says it all by itself; as an array of a GPU it would first wait for the default stream.
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
        """All of it as uint8 with one axis, with the registration that it has; None: it has none."""
        if not isinstance(self._view, _core.Memory):
            return None
        return self._view.reshape(-1).view("uint8")

    def bytes(self) -> _core.ArrayView:
        """All of it as an array of uint8 with one axis, which whoever moves it registers."""
        return self._array().reshape(-1).view("uint8")

    def words(self) -> _core.ArrayView | None:
        """The whole uint64 elements in it, of which atomics need one; None where there is none.

        Of host memory that begins at a multiple of 8 bytes.
        """
        if self.device != "cpu" or self.address % _WORD or self.nbytes < _WORD:
            return None
        return self.bytes()[: self.nbytes // _WORD * _WORD].view("uint64")

    def _array(self) -> _core.ArrayView:
        return _core.ArrayView(self._view) if isinstance(self._view, _core.Memory) else self._view

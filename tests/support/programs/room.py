"""Arrays of a rank in a call, of any form, that know all bytes which the call must leave behind."""

from typing import Any

import numpy as np

from support.programs.model import GAPS, OWN, TENSOR, kind_of

POISON = 0xA5
_GUARD = 64  # bytes on either side: whole elements of any type


class Room:
    """`array` is what the call is given: `values`, or an output of `count` elements.

    check(expected): the array has these elements, or what it had; and around it, and in its gaps, is what was there.
    """

    def __init__(
        self, endpoint: Any, dtype: str, values: np.ndarray | None, count: int, form: str
    ) -> None:
        self._dtype, self._gaps = kind_of(dtype), GAPS in form
        nbytes = count * self._dtype.itemsize * (2 if self._gaps else 1)
        if OWN in form:
            memory = endpoint.empty(nbytes + 2 * _GUARD)
            self._bytes = np.asarray(memory)
            self.array: Any = memory[_GUARD : _GUARD + nbytes].view(dtype)
        else:
            self._bytes = np.empty(nbytes + 2 * _GUARD, np.uint8)
        self._bytes[:] = POISON
        if values is not None:
            self._elements(self._bytes)[:] = values
        self._before = self._bytes.copy()
        if TENSOR in form:
            self.array = _tensor(self._bytes, dtype)[:: 2 if self._gaps else 1]
        elif OWN not in form:
            self.array = self._elements(self._bytes)

    def _elements(self, whole: np.ndarray) -> np.ndarray:
        elements = whole[_GUARD : len(whole) - _GUARD].view(self._dtype)
        return elements[::2] if self._gaps else elements

    def part(self, begin: int, count: int) -> Any:
        return self.array[begin : begin + count]

    def values(self) -> np.ndarray:
        return self._elements(self._bytes)

    def check(self, expected: np.ndarray | None) -> str:
        """What is wrong; "" if nothing is."""
        image = self._before.copy()
        if expected is not None:
            self._elements(image)[:] = expected
        if np.array_equal(image, self._bytes):
            return ""
        wrong = np.flatnonzero(image != self._bytes)
        at = int(wrong[0])
        return (
            f"{len(wrong)} of {len(image)} bytes, of which {_GUARD} on either side are guards: first "
            f"{at}: {self._bytes[at]:#x}, not {image[at]:#x}"
        )


def _tensor(whole: np.ndarray, dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(whole[_GUARD : len(whole) - _GUARD])
    return tensor.view(getattr(torch, dtype))

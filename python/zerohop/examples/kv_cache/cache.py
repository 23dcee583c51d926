"""A cache of blocks, and the numbers that stand for keys and values: another word at every place of every block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zerohop.examples.arrays import arrays_of
from zerohop.examples.kv_cache.plan import Plan, Request

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from zerohop.endpoint import Endpoint

__all__ = ["Cache", "computed"]

Words = npt.NDArray[np.int32]

# Odd, so that no two rows have the same word at one place, and no row the same word at two.
_ROW, _WORD = 0x1E3779B1, 0x05EBCA6B
_EMPTY = -1


def computed(rows: npt.NDArray[np.int64], words: int) -> Words:
    """What prefill computes for these rows of its cache."""
    there = rows.astype(np.uint32)[:, None] * np.uint32(_ROW)  # modulo 2**32
    values: Words = (there + np.arange(words, dtype=np.uint32) * np.uint32(_WORD)).view(np.int32)
    return values


class Cache:
    """Memory of the Endpoint; closed by ``with``."""

    def __init__(self, endpoint: Endpoint, plan: Plan, device: str) -> None:
        self._plan, self._arrays = plan, arrays_of(device)
        self.memory = endpoint.empty(plan.shape, "int32", device=device)
        self.rows: Any = self._arrays.view(self.memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del self.rows
        self.memory.close()

    def prefill(self) -> None:
        """As if all prompts had been computed."""
        count, words = self._plan.shape
        for first in range(0, count, self._plan.rows_at_once):
            rows = np.arange(first, min(count, first + self._plan.rows_at_once))
            self._arrays.fill(self.rows[first : first + len(rows)], computed(rows, words))

    def clear(self) -> None:
        """Nothing of an earlier lap is taken for what came in the next."""
        self._arrays.fill(self.rows, np.int32(_EMPTY))

    def first_wrong(self, request: Request) -> str:
        """In words, of all blocks that the request has here; empty if each is what prefill computed."""
        plan = self._plan
        here, there = plan.rows(request.wanted), plan.rows(request.computed)
        for first in range(0, len(here), plan.rows_at_once):
            part = slice(first, first + plan.rows_at_once)
            found = self._arrays.to_host(self.rows[here[part]])
            right = computed(there[part], plan.shape[1])
            differing = np.argwhere(found != right)
            if len(differing):
                at, word = differing[0]
                layer, block = divmod(int(here[part][at]), plan.blocks)
                return (
                    f"word {word} of block {block} in layer {layer}, of request {request.number}, is {found[at, word]}, "
                    f"not {right[at, word]} of the prefill side's block {there[part][at] % plan.blocks}"
                )
        return ""

"""all_reduce of sparse tensors in host memory, such as the gradients of ``nn.Embedding(sparse=True)``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zerohop.torch.foreign import c10d, dist, torch
from zerohop.torch.works import Work, Works


class SparseWork(Work):
    """The parts of all ranks on their way: their indices and values, which are added up by whoever asks for the result first."""

    def __init__(
        self, parts: Works, tensor: Any, add_up: Callable[[], Any], seconds: float
    ) -> None:
        super().__init__([tensor], seconds)
        self._parts, self._tensor, self._add_up = parts, tensor, add_up
        self._lock, self._finished = threading.Lock(), False

    def is_completed(self) -> bool:
        if not self._parts.is_completed():
            return False
        if self._parts.is_success():
            self._finish()
        return True

    def _about(self) -> str:
        return f"all_reduce of a sparse tensor: {self._parts._about()}"

    def _join(self, seconds: float) -> None:
        self._parts._join(seconds)
        self._finish()

    def _wait_to_the_end(self) -> None:
        self._parts._wait_to_the_end()
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            if not self._finished:
                with torch.no_grad():
                    self._tensor.copy_(self._add_up())
                self._finished = True


def all_reduce(
    allgather: Callable[..., Work], tensor: Any, opts: Any, size: int, seconds: float
) -> Work:
    """allgather: that of the group's Calls. Waits until all ranks have said how many elements they have. Raises ValueError."""
    if tensor.layout != torch.sparse_coo or tensor.device.type != "cpu":
        raise ValueError(
            f"all_reduce: a {tensor.device.type} tensor of layout {tensor.layout} cannot be reduced"
        )
    if opts.reduceOp != dist.ReduceOp.SUM:
        raise ValueError(f"all_reduce of a sparse tensor: only SUM, not {opts.reduceOp}")
    options = c10d.AllgatherOptions()
    options.timeout = opts.timeout
    own = tensor.detach().coalesce()
    indices, values = own.indices().t().contiguous(), own.values()
    shape = [own.sparse_dim(), *own.shape]
    about = torch.empty((size, 1 + len(shape)), dtype=torch.int64, device="cpu")
    mine = torch.tensor([[len(values), *shape]], device="cpu")
    allgather([list(about.split(1))], [mine], options).wait()
    counts, shapes = about[:, 0].tolist(), about[:, 1:].tolist()
    if shapes != [shape] * size:
        raise ValueError(
            f"all_reduce of a sparse tensor: the ranks have different shapes: {shapes}"
        )
    at = [indices.new_empty((count, indices.shape[1])) for count in counts]
    what = [values.new_empty((count, *values.shape[1:])) for count in counts]
    parts = Works(
        [allgather([at], [indices], options), allgather([what], [values], options)], seconds
    )

    def add_up() -> Any:
        together = torch.sparse_coo_tensor(
            torch.cat(at).t(), torch.cat(what), own.shape, check_invariants=False
        )  # they are of coalesced tensors of this shape
        return together.coalesce()

    return SparseWork(parts, tensor, add_up, seconds)

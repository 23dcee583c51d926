"""Arrays of GPUs as kernels take them: addresses, without a registration."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from zerohop import _core
from zerohop.collectives.blocks import view_of_any


def view_of(array: Any, what: str, *, written: bool = False) -> _core.ArrayView:
    """Raises TypeError, ValueError."""
    # A view of Memory would wait for the default stream.
    view: Any = array if isinstance(array, _core.Memory) else view_of_any(array, what)
    if not view.contiguous:
        raise ValueError(f"{what} must be contiguous: pass a contiguous copy (tensor.contiguous())")
    if written and not view.writable:
        raise ValueError(f"{what} is written, but read-only: give a writable array")
    each = view.nbytes // max(1, prod(view.shape))
    if each and view.address % each:
        raise ValueError(
            f"{what} begins at an address that is no multiple of {each}, the size of its elements"
        )
    found: _core.ArrayView = view
    return found


def views_of_parts(
    given: Any, what: str, size: int, *, written: bool = False
) -> list[_core.ArrayView]:
    """A list of arrays, one for each rank, or an array that is split along its first axis. All are of one size."""
    if isinstance(given, (list, tuple)):
        if len(given) != size:
            raise ValueError(f"{what} must have {size} arrays, one for each rank, not {len(given)}")
        views = [
            view_of(each, f"{what}[{rank}]", written=written) for rank, each in enumerate(given)
        ]
        return views
    whole = view_of(given, what, written=written)
    rows = whole.shape[0] if whole.shape else 0
    if not whole.shape or rows % size:
        raise ValueError(
            f"{what} of shape {whole.shape} cannot be split into {size} equal blocks along its first axis"
        )
    return [whole[rank * (rows // size) : (rank + 1) * (rows // size)] for rank in range(size)]


def are_even(views: Sequence[_core.ArrayView]) -> bool:
    """Whether all have one size, as kernels need."""
    return all(view.nbytes == views[0].nbytes for view in views)


def check_views(
    sources: Sequence[_core.ArrayView], targets: Sequence[_core.ArrayView], rank: int
) -> None:
    """Raises ValueError for different dtypes and sizes, and for memory that is both written and read, or written twice.

    Only this rank's own block may lie exactly at its destination.
    """
    views = [*sources, *targets]
    for view in views:
        if view.dtype != views[0].dtype or view.nbytes != views[0].nbytes:
            raise ValueError(
                f"blocks of {views[0].nbytes} bytes of {views[0].dtype} and of {view.nbytes} bytes of {view.dtype}: kernels take "
                "one dtype, and equal blocks"
            )

    def own(of: Sequence[_core.ArrayView]) -> int:
        return rank if len(of) > 1 else 0

    for number, target in enumerate(targets):
        for other, source in enumerate(sources):
            same = target.address == source.address
            if same and number == own(targets) and other == own(sources):
                continue
            if abs(target.address - source.address) < target.nbytes:
                raise ValueError("memory that is written overlaps with memory that is read")
        for second in targets[:number]:
            if abs(target.address - second.address) < target.nbytes:
                raise ValueError("memory is written twice: the outputs overlap")

"""The reductions of a World, as a program calls them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

from zerohop._world.history import ALL_REDUCE, KINDS, REDUCE, REDUCE_SCATTER, SCAN
from zerohop.collectives.blocks import Flat, check_apart, check_dtypes, check_own, moved
from zerohop.collectives.desk import Desk, How
from zerohop.collectives.exchange import Blocks
from zerohop.collectives.help import reduction as documented
from zerohop.collectives.reductions import OPS, Reduction, check_elements, parse_reduction
from zerohop.collectives.views import are_even, view_of, views_of_parts

_NUMBERS = (int, float, complex, np.generic)
_SIMPLE = {op: number for op, number in OPS.items() if op != "premul_sum"}


class ReductionCalls:
    """Reductions: collectives that combine the arrays of all ranks, element by element.

    op: "sum", "prod", "min", "max" (NaN if any is NaN), "avg" (of floats), "premul_sum" (the sum times `factor`, which all ranks give
    alike), "band", "bor", "bxor" (bits of integers), "land", "lor" (logical). dtypes: integers, which wrap, bool, float16 and
    bfloat16, which are accumulated in float32 and rounded once, float32, float64, complex. Blocks are combined in the order of
    ranks: the result is the same on all ranks and in every run, bit for bit.

    array: of a host, strided or not, or a contiguous one of a GPU; or a number, for which the call
    returns the result. out: another array for the result; default: `array` itself.

    In other respects they are collectives, with the same arguments and errors; TypeError for an op that the dtype does not have.
    """

    rank: int
    size: int
    _desk: Desk

    @documented(of_numbers=True)
    def all_reduce(
        self,
        array: Any,
        op: str = "sum",
        *,
        out: Any = None,
        factor: float | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines the arrays of all ranks, element by element, on every rank.

        array: of any shape, of the same size on all ranks: of a host, strided or not, or a contiguous one of a GPU; or a number.
        out: an array of that size and dtype for the result; default: `array` itself.
        """
        if stream is None and wait and factor is None and type(op) is str and op in _SIMPLE:
            done = self._desk.at_once(ALL_REDUCE, None, out, array, timeout, _SIMPLE[op], 1.0)
            if done is not None:
                return done
        how = How(stream, timeout, wait)
        return self._reduce(ALL_REDUCE, None, array, parse_reduction(op, factor), out, how)

    @documented(of_numbers=True)
    def reduce(
        self,
        array: Any,
        root: int = 0,
        op: str = "sum",
        *,
        out: Any = None,
        factor: float | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines the arrays of all ranks, element by element, on the root. Elsewhere `array` does not change, and a number gives None.

        array: of any shape, of the same size on all ranks: of a host, strided or not, or a contiguous one of a GPU; or a number.
        root: the rank that gets the result.
        out: on the root, an array of that size and dtype for the result; default: `array` itself.
        """
        how = How(stream, timeout, wait)
        return self._reduce(REDUCE, root, array, parse_reduction(op, factor), out, how)

    @documented(of_numbers=True)
    def scan(
        self,
        array: Any,
        op: str = "sum",
        *,
        out: Any = None,
        factor: float | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines on each rank the arrays of ranks 0 to its own, element by element (MPI_Scan). "avg" is not possible.

        array: of any shape, of the same size on all ranks: of a host, strided or not, or a contiguous one of a GPU; or a number.
        out: an array of that size and dtype for the result; default: `array` itself.
        """
        if op == "avg":
            raise ValueError("scan has no avg: take the sum, and divide it by rank + 1")
        how = How(stream, timeout, wait)
        return self._reduce(SCAN, None, array, parse_reduction(op, factor), out, how)

    @documented(of_numbers=False)
    def reduce_scatter(
        self,
        out: Any,
        parts: Any,
        op: str = "sum",
        *,
        counts: Iterable[int] | None = None,
        factor: float | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Combines part `i` of all ranks, element by element, into `out` of rank `i`.

        out: contiguous, of the size of this rank's part; written.
        parts: a list of arrays, one for each rank, or one array that is split along its first axis.
        counts: rows of each part of one array, one number for each rank, the same on all ranks; default: equal parts.
        """
        reduction, desk = parse_reduction(op, factor), self._desk
        if counts is None and desk.gpus.takes(out, parts):
            views = views_of_parts(parts, "parts", self.size)
            if are_even(views):
                return desk.by_kernels(
                    REDUCE_SCATTER,
                    None,
                    views,
                    [view_of(out, "out", written=True)],
                    How(stream, timeout, wait),
                    reduction,
                )
        if counts is None and stream is None and wait:
            done = desk.at_once(REDUCE_SCATTER, None, out, parts, timeout, *reduction)
            if done is not None:
                return done
        check_elements(out, "out")
        for each in parts if isinstance(parts, (list, tuple)) else (parts,):
            check_elements(each, "parts")
        sources, blocks = desk.parts(parts, "parts", counts)
        target = desk.flat(out, "out", writable=True)
        flats = [*sources, target]
        check_dtypes(flats)
        check_own(target.whole(), blocks[self.rank])
        check_apart([target.whole()], moved(blocks, self.rank, target.whole()))
        return desk.start(
            KINDS[REDUCE_SCATTER],
            None,
            flats,
            How(stream, timeout, wait),
            Blocks([target.whole()], blocks, reduction=reduction),
            sum(block.nbytes for block in blocks),
        )

    def _reduce(
        self, kind: int, root: int | None, array: Any, reduction: Reduction, out: Any, how: How
    ) -> Any:
        if isinstance(array, _NUMBERS):
            return self._reduce_number(kind, root, array, reduction, out, how)
        if how.stream is None and how.wait:
            done = self._desk.at_once(kind, root, out, array, how.timeout, *reduction)
            if done is not None:
                return done
        check_elements(array, "array")
        check_elements(out, "out")
        desk = self._desk
        root = None if root is None else desk.rank(root)
        has_result = root in (None, self.rank)
        if desk.gpus.takes(array, out if has_result else None):
            view = view_of(array, "array", written=has_result and out is None)
            into = view if out is None else view_of(out, "out", written=True)
            return desk.by_kernels(kind, root, [view], [into] if has_result else [], how, reduction)
        in_place = has_result and out is None
        source = _ContiguousCopy(array, "array", written=in_place)
        target = (
            source if out is None or not has_result else _ContiguousCopy(out, "out", written=True)
        )
        flat = desk.flat(source.array, "array", writable=in_place)
        result = flat
        if out is not None and has_result:
            result = desk.flat(target.array, "out", writable=True)
            _check_pair(result, flat)
        flats = [flat] if result is flat else [flat, result]
        outs = [result.whole()] if has_result else []
        blocks = Blocks(outs, [flat.whole()], reduction=reduction)
        after = target.unpack if has_result else None
        return desk.start(KINDS[kind], root, flats, how, blocks, flat.nbytes, after)

    def _reduce_number(
        self, kind: int, root: int | None, number: Any, reduction: Reduction, out: Any, how: How
    ) -> Any:
        if out is not None or not how.wait:
            raise ValueError("the call returns the result of a number: without out= and wait=False")
        plain = isinstance(number, int) and not isinstance(number, bool)
        try:
            array = np.array(number, np.int64 if plain else None)
        except OverflowError:
            raise ValueError(f"{number} does not fit int64: pass a float, or an array") from None
        self._reduce(kind, root, array, reduction, None, how)
        if root not in (None, self.rank):
            return None
        return array[()] if isinstance(number, np.generic) else array.item()


def _check_pair(result: Flat, flat: Flat) -> None:
    check_dtypes([flat, result])
    check_own(result.whole(), flat.whole())
    if not result.whole().is_at(flat.whole()):
        check_apart([result.whole()], [flat.whole()])


class _ContiguousCopy:
    """An array, or a contiguous copy of one of a host that is not contiguous."""

    def __init__(self, given: Any, what: str, *, written: bool) -> None:
        self._given, self.array = given, given
        if isinstance(given, np.ndarray) and not given.flags.c_contiguous:
            if written and not given.flags.writeable:
                raise ValueError(f"{what} is written, but read-only: give a writable array")
            self.array = np.ascontiguousarray(given)
        elif _is_tensor_with_gaps(given):
            self._given = given.detach()
            if written and any(
                length > 1 and not stride
                for length, stride in zip(given.shape, given.stride(), strict=True)
            ):
                raise ValueError(f"{what} is written, but its elements overlap: give a copy")
            self.array = self._given.contiguous()

    def unpack(self) -> None:
        """Copies the result back."""
        if self.array is self._given:
            return
        if isinstance(self._given, np.ndarray):
            self._given[...] = self.array
        else:
            torch = import_module("torch")
            with torch.inference_mode(self._given.is_inference()):
                self._given.copy_(self.array)


def _is_tensor_with_gaps(array: Any) -> bool:
    """Of PyTorch, in host memory."""
    is_contiguous = getattr(array, "is_contiguous", None)
    return is_contiguous is not None and not is_contiguous() and array.device.type == "cpu"

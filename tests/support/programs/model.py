"""A program of collectives as data, and what each rank gives and is to have of each call, by NumPy."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from support.hosts import reduced_by_the_table
from support.reduced import HALVES, reduced

# Groups without p2p, or with checks: each rank counts as a host, on which the order of sums depends.
FAR = frozenset(
    {
        "five over soft0", "three checked", "three with faults", "two over soft0", "torch, three over soft0",
        "all over soft0",
    }
)  # fmt: skip
REDUCTIONS = ("all_reduce", "reduce", "scan", "reduce_scatter")
ROOTED = ("broadcast", "scatter", "gather", "reduce", "pair")
IN_PARTS = ("scatter", "gather", "all_gather", "all_to_all", "reduce_scatter")

# How a rank makes a call, one letter each: the others need not do the same.
BEHIND = "b"  # it goes on, and waits later
APART = "o"  # the output is another array than the input
LISTED = "l"  # parts are a list of arrays
GAPS = "g"  # the array has gaps
OWN = "m"  # memory of the Endpoint
TENSOR = "t"  # of PyTorch


@dataclass(frozen=True)
class Step:
    """A collective of a group, or "wait": for the oldest call of each rank that it has not waited for.

    count: elements of a block. uneven: not 0: blocks have other sizes than that. forms: of each rank of the group.
    """

    group: str
    call: str
    count: int = 0
    dtype: str = "int32"
    op: str = ""
    root: int = 0
    uneven: int = 0
    forms: tuple[str, ...] = ()

    def __repr__(self) -> str:
        more = (
            f", {each.name}={getattr(self, each.name)!r}"
            for each in fields(self)[2:]
            if getattr(self, each.name) != each.default
        )
        return f"Step({self.group!r}, {self.call!r}{''.join(more)})"


@dataclass(frozen=True)
class Program:
    """elsewhere: the process whose arrays no CPU reaches, as those of a GPU."""

    seed: int
    steps: tuple[Step, ...]
    elsewhere: int | None = None


@dataclass(frozen=True)
class Part:
    """Of one rank in a call. sent, got: flat arrays, None where it gives or gets none; counts, got_counts: their blocks by rank."""

    sent: np.ndarray | None = None
    got: np.ndarray | None = None
    counts: Sequence[int] = ()
    got_counts: Sequence[int] = ()


def kind_of(dtype: str) -> np.dtype[Any]:
    return np.dtype(HALVES.get(dtype, dtype))


@cache
def _table(dtype: str) -> np.ndarray:
    """Elements of which all arrays consist: so few that large arrays cost little. Floats without overflow in products of a few."""
    count, kind, random = 1021, kind_of(dtype), np.random.default_rng(7)
    zero = random.integers(0, 3, count) == 0
    if kind.kind in "iub":
        bits = random.integers(0, 256, (count, kind.itemsize), np.uint8)
        made = (bits & 1).astype(bool)[:, 0] if dtype == "bool" else bits.view(kind)[:, 0]
    else:
        values = random.uniform(0.5, 2.0, count) * random.choice([-1, 1], count)
        made = (values + 1j * random.uniform(-1, 1, count) if kind.kind == "c" else values).astype(
            kind
        )
    return np.where(zero, np.zeros(1, kind), made)


def content(program: Program, number: int, rank: int, count: int) -> np.ndarray:
    """What a rank gives in that step: the same wherever it is worked out."""
    table = _table(program.steps[number].dtype)
    begin = (program.seed * 331 + number * 59 + rank * 97) % len(table)
    return np.resize(np.roll(table, -begin), count)


def _blocks(step: Step, size: int, salt: int = 0) -> list[int]:
    """The counts by rank."""
    if not step.uneven:
        return [step.count] * size
    return [step.count * ((rank * step.uneven + salt) % 3) // 2 for rank in range(size)]


def _block(array: np.ndarray, counts: Sequence[int], number: int) -> np.ndarray:
    begin = sum(counts[:number])
    return array[begin : begin + counts[number]]


def neighbours(step: Step, rank: int, size: int) -> tuple[int | None, int | None]:
    """Of the calls between two ranks: to whom this one sends, and from whom it receives."""
    root = step.root % size
    if step.call == "ring":
        return (rank + 1 + root) % size, (rank - 1 - root) % size
    target = (root + 1 + step.uneven) % size
    if target == root:
        target = (root + 1) % size
    return (target if rank == root else None), (root if rank == target else None)


def parts(program: Program, number: int, size: int) -> list[Part]:
    """Of all ranks of the step's group."""
    step = program.steps[number]
    ranks, root = range(size), step.root % size
    return _PARTS.get(step.call, _nothing)(program, number, ranks, root)


def _nothing(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    return [Part() for _ in ranks]


def _broadcast(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    step = program.steps[number]
    sent = content(program, number, root, step.count)
    return [Part(sent if rank == root else None, sent) for rank in ranks]


def _scatter(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    counts = _blocks(program.steps[number], len(ranks))
    sent = content(program, number, root, sum(counts))
    return [
        Part(sent if rank == root else None, _block(sent, counts, rank), counts) for rank in ranks
    ]


def _gathered(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    step = program.steps[number]
    counts = _blocks(step, len(ranks))
    sent = [content(program, number, rank, counts[rank]) for rank in ranks]
    got = np.concatenate(sent)
    of_all = step.call == "all_gather"
    return [Part(sent[rank], got if of_all or rank == root else None, (), counts) for rank in ranks]


def _all_to_all(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    step = program.steps[number]
    counts = [_blocks(step, len(ranks), rank) for rank in ranks]
    sent = [content(program, number, rank, sum(counts[rank])) for rank in ranks]
    return [
        Part(
            sent[rank],
            np.concatenate([_block(sent[other], counts[other], rank) for other in ranks]),
            counts[rank],
            [counts[other][rank] for other in ranks],
        )
        for rank in ranks
    ]


def _reduced(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    step = program.steps[number]
    sent = [content(program, number, rank, step.count) for rank in ranks]
    if step.call == "scan":
        return [Part(sent[rank], reduced(step.op, sent[: rank + 1])) for rank in ranks]
    hosts = [(rank,) for rank in ranks] if step.group in FAR else [tuple(ranks)]
    got = reduced_by_the_table(step.call, step.op, sent, hosts)
    of_all = step.call in ("all_reduce", "number")
    return [Part(sent[rank], got if of_all or rank == root else None) for rank in ranks]


def _reduce_scatter(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    step = program.steps[number]
    counts = _blocks(step, len(ranks))
    sent = [content(program, number, rank, sum(counts)) for rank in ranks]
    got = reduced(step.op, sent)
    return [Part(sent[rank], _block(got, counts, rank), counts) for rank in ranks]


def _between_two(program: Program, number: int, ranks: range, root: int) -> list[Part]:
    step = program.steps[number]
    made = []
    for rank in ranks:
        to, source = neighbours(step, rank, len(ranks))
        sent = None if to is None else content(program, number, rank, step.count)
        got = None if source is None else content(program, number, source, step.count)
        made.append(Part(sent, got))
    return made


def close_to(
    program: Program, number: int, size: int, came: np.ndarray, expected: np.ndarray
) -> bool:
    """Whether another order of sums may give that: integers as they are."""
    if expected.dtype.kind in "iub":
        return np.array_equal(came, expected)
    step = program.steps[number]
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    came, expected = came.astype(wide), expected.astype(wide)
    most = 3.0 * size if step.op == "sum" else np.abs(expected)  # of numbers up to 3
    return bool((np.abs(came - expected) <= 4 * size * _EPS[step.dtype] * most).all())


_EPS = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23,
    "float64": 2.0**-52, "complex128": 2.0**-52,
}  # fmt: skip


_PARTS = {
    "broadcast": _broadcast,
    "scatter": _scatter,
    "gather": _gathered,
    "all_gather": _gathered,
    "all_to_all": _all_to_all,
    "all_reduce": _reduced,
    "number": _reduced,
    "reduce": _reduced,
    "scan": _reduced,
    "reduce_scatter": _reduce_scatter,
    "ring": _between_two,
    "pair": _between_two,
}

"""The table by which a World chooses how a reduction goes, and files of such tables.

A file has a list of rows in JSON, each {"hosts": 2, "ranks": null, "nbytes": 65536, "algorithm": "hosts pairs whole", "slice": 65536}.
A row applies to Worlds of up to so many hosts and ranks and to arrays of up to so many bytes, null to any; the first row that applies
counts; the last one applies to all. algorithm: "flat" (all ranks with all others) or "hosts" (first the ranks of a host), then perhaps "pairs" (across hosts
by recursive doubling, of slices halving and doubling) and "whole" (arrays are not divided into slices). slice: most bytes of a slice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from zerohop import _core

VARIABLE = "ZEROHOP_COLLECTIVES"
EAGER = _core.Lines.EAGER
_WORDS = ({"flat", "hosts"}, {"pairs"}, {"whole"})
_MOST_ROWS = 64  # they are in the entry of each rank

# As _core.Topology takes it.
CoreRow: TypeAlias = tuple[int | None, int | None, int | None, bool, bool, bool, int]


class Row(NamedTuple):
    hosts: int | None
    ranks: int | None
    nbytes: int | None
    algorithm: str
    slice: int = EAGER

    def for_core(self) -> CoreRow:
        words = self.algorithm.split()
        kinds = "hosts" in words, "pairs" in words, "whole" in words
        return (self.hosts, self.ranks, self.nbytes, *kinds, self.slice)


# On one host slices stay in the caches, and arrays are whole if the messages of all ranks are not much more. Across hosts, over TCP
# between network namespaces of one busy machine with two cores: 4 ranks with a host each took 95 us for 4 KiB in pairs and 505 us at
# once, two hosts of two ranks 96 us and, flat, 299 us; for 4 MiB 4.9 ms in slices of 64 KiB, 5.9 ms in slices of 1 MiB, which two
# ranks with a host each sent in 3.1 and not 16 ms.
DEFAULT = (
    Row(1, 3, EAGER, "flat whole"),
    Row(1, 5, EAGER // 2, "flat whole"),
    Row(1, 8, EAGER // 4, "flat whole"),
    Row(1, None, None, "flat"),
    Row(None, None, EAGER, "hosts pairs whole"),
    Row(None, 2, 8 * EAGER, "hosts"),
    Row(None, 2, None, "hosts", 16 * EAGER),
    Row(None, None, 32 * EAGER, "hosts"),
    Row(None, None, None, "hosts", 16 * EAGER),
)


def read_table() -> str:
    """The table of $ZEROHOP_COLLECTIVES, as ranks compare it; "": the default. Raises ValueError, OSError."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [_row(each) for each in json.load(file)]
        if len(rows) > _MOST_ROWS:
            raise ValueError(f"it has {len(rows)} rows, more than {_MOST_ROWS}")
        if not rows or rows[-1][:3] != (None, None, None):
            raise ValueError("its last row must be for all: hosts, ranks and nbytes null")
        _core.Topology([0], [row.for_core() for row in rows])
    except OSError as error:
        raise OSError(f"{VARIABLE}={path}: {error.strerror}: correct or unset it") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{VARIABLE}={path} is no table of algorithms ({error}): make one with `zerohop bench collectives --tune`, or unset it"
        ) from None
    return json.dumps(rows)


def write_table(path: str | os.PathLike[str], rows: Sequence[Row]) -> None:
    lines = ",\n".join("  " + json.dumps(row._asdict()) for row in rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"[\n{lines}\n]\n")


def rows_in(table: str) -> list[CoreRow]:
    """table: as read_table() returns it."""
    return [row.for_core() for row in _rows(table)]


def check_alike(table: str, other: str, rank: int, other_rank: int) -> None:
    """Raises ValueError."""
    mine = _rows(table)
    try:
        its = _rows(other)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(
            f"rank {other_rank} has a table of algorithms of another version of zerohop: use the same version on all ranks"
        ) from None
    if mine == its:
        return
    pairs = enumerate(zip(mine, its, strict=False))
    at = next((n for n, (a, b) in pairs if a != b), min(len(mine), len(its)))
    shown = [
        json.dumps(rows[at]._asdict()) if at < len(rows) else "missing" for rows in (mine, its)
    ]
    raise ValueError(
        f"ranks {rank} and {other_rank} have different tables of algorithms: row {at + 1} is {shown[0]} on rank {rank}, "
        f"{shown[1]} on rank {other_rank}; set {VARIABLE} to the same file on all ranks, or on none"
    )


def _rows(table: str) -> tuple[Row, ...]:
    return tuple(Row(*row) for row in json.loads(table)) if table else DEFAULT


def _row(given: Any) -> Row:
    row = Row(**given)
    for name in ("hosts", "ranks", "nbytes"):
        number = getattr(row, name)
        if number is not None and (type(number) is not int or number < 0):
            raise ValueError(f"{name} must be a number or null, not {number!r}")
    words = row.algorithm.split() if isinstance(row.algorithm, str) else ()
    if len(words) != len(set(words)) or not _is_algorithm(words):
        raise ValueError(f"there is no algorithm {row.algorithm!r}")
    if type(row.slice) is not int:
        raise ValueError(f"slice must be a number, not {row.slice!r}")
    return row


def _is_algorithm(words: Sequence[str]) -> bool:
    known = set.union(*_WORDS)
    return set(words) <= known and len(set(words) & _WORDS[0]) == 1

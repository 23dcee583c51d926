"""The format of all figures: one list of flat rows, the first a header of machine facts."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerohop import __version__
from zerohop.bench.placement import FREE
from zerohop.host import available_memory, cpu_model, usable_cores

OURS = "zerohop"
UNSTEADY = 0.2  # two values may differ by this part of the lesser
DRIVERS = {"cpp": "C++", "python": "Python", "kernel": "kernel"}  # the loop that drove it


@dataclass(frozen=True)
class Row:
    """One figure. Times are in "s", rates in "B/s" and "1/s", sizes in "B"; nbytes is 0 if none applies."""

    suite: str
    test: str
    route: str
    device: str
    memory: str
    driver: str  # a key of DRIVERS
    nbytes: int
    impl: str  # OURS or the name of a peer
    metric: str
    value: float
    unit: str
    turns: int = 1  # how often it was taken; value is the median
    spread: float = 0.0  # half the difference between the least and the greatest of them
    placement: str = FREE  # of the ends: see placement.py
    steady: bool = True  # whether the second pass agreed within UNSTEADY


def header(suite: str, versions: Mapping[str, Any]) -> dict[str, Any]:
    """The first row: the machine and the software. `versions`: of the peers in the run, and other facts to keep."""
    return {
        "suite": suite,
        "test": "header",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_nbytes": available_memory(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "zerohop": __version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **versions,
    }


def settled(passes: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for each figure: the median of its values, and whether the two passes agree.

    A figure that only one pass has does not count as steady.
    """
    values: dict[Row, list[list[float]]] = {}
    for number, rows in enumerate(passes):
        for row in rows:
            key = dataclasses.replace(row, value=0.0)
            values.setdefault(key, [[] for _ in passes])[number].append(row.value)
    return [_settled(row, taken) for row, taken in values.items()]


def _settled(row: Row, taken: Sequence[Sequence[float]]) -> Row:
    each = [value for some in taken for value in some]
    medians = [statistics.median(some) for some in taken if some]
    apart = max(medians) - min(medians)
    steady = len(medians) == len(taken) and apart <= UNSTEADY * min(map(abs, medians))
    return dataclasses.replace(
        row,
        value=statistics.median(each),
        turns=len(each),
        spread=(max(each) - min(each)) / 2,
        steady=steady,
    )


def write_json(path: Path, head: dict[str, Any], rows: Iterable[Row]) -> None:
    """Writes [head, row, row, ...], one row a line, so that two runs can be compared line by line."""
    lines = [json.dumps(row) for row in (head, *map(dataclasses.asdict, rows))]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read_json(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Reads the header and rows that `write_json` wrote. Raises ValueError for other files."""
    try:
        head, *rows = json.loads(path.read_text())
        if not isinstance(head, dict) or head["test"] != "header":
            raise ValueError("its first row is not a header")
        return head, [Row(**fields) for fields in rows]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{str(path)!r} has no rows of zerohop bench --json: {error}") from None


class Figures:
    """Rows by what they measure."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = {(row.test, row.metric, row.impl, row.driver, row.nbytes): row for row in rows}

    def by_size(
        self, test: str, metric: str, impl: str = OURS, driver: str | None = None
    ) -> dict[int, float]:
        """The values over the size of the message, in rising order; driver None: any."""
        found = {
            nbytes: row.value
            for (*what, loop, nbytes), row in self._rows.items()
            if what == [test, metric, impl] and driver in (None, loop)
        }
        return dict(sorted(found.items()))

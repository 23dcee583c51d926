"""The shape of every benchmark's figures: one list of flat rows, the first a header of machine facts."""

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
UNSTEADY = 0.2  # of the lesser of two values, by which they may differ
DRIVERS = {"cpp": "C++", "python": "Python", "kernel": "kernel"}  # which loop drove it


@dataclass(frozen=True)
class Row:
    """One figure. Times are in "s", rates in "B/s" and "1/s", sizes in "B"; nbytes is 0 where none applies."""

    suite: str
    test: str
    route: str
    device: str
    memory: str
    driver: str  # of DRIVERS
    nbytes: int
    impl: str  # OURS or the name of a peer
    metric: str
    value: float
    unit: str
    turns: int = 1  # how often it was taken: value is the median
    spread: float = 0.0  # half of what lies between the least and the greatest of them
    placement: str = FREE  # of the ends: see placement.py
    steady: bool = True  # whether it was the same, within UNSTEADY, when it was taken again


def header(suite: str, versions: Mapping[str, Any]) -> dict[str, Any]:
    """The first row: what ran where. `versions`: those of the peers in the run, and what else is to be kept."""
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
    """One row for each figure: the median of its values, and whether those of one pass and of the other agree.

    One that a pass alone has is not known to be steady.
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
    """Writes [head, row, row, ...], one row a line, so that two runs can be compared by eye."""
    lines = [json.dumps(row) for row in (head, *map(dataclasses.asdict, rows))]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read_json(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """What `write_json` wrote: the header and the rows. Raises ValueError for other files."""
    try:
        head, *rows = json.loads(path.read_text())
        if not isinstance(head, dict) or head["test"] != "header":
            raise ValueError("its first row is no header")
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
        """The values over the size of the message, in rising order; driver None: whichever there is."""
        found = {
            nbytes: row.value
            for (*what, loop, nbytes), row in self._rows.items()
            if what == [test, metric, impl] and driver in (None, loop)
        }
        return dict(sorted(found.items()))

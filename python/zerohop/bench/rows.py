"""The shape of every benchmark's figures: one list of flat rows, the first a header of machine facts."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerohop import __version__
from zerohop.host import available_memory, cpu_model, usable_cores

DRIVERS = {
    "cpp": "C++",
    "python": "Python",
    "kernel": "kernel",
}  # which loop drove it, and its name


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
    impl: str  # "zerohop" or the name of a peer
    metric: str
    value: float
    unit: str
    turns: int = 1  # how often it was taken: value is the median
    spread: float = 0.0  # half of what lies between the least and the greatest of them


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


def medians(rows: Iterable[Row]) -> list[Row]:
    """One row for each figure that was taken several times: the median of its values."""
    values: dict[Row, list[float]] = {}
    for row in rows:
        values.setdefault(dataclasses.replace(row, value=0.0), []).append(row.value)
    return [
        dataclasses.replace(
            row, value=statistics.median(v), turns=len(v), spread=(max(v) - min(v)) / 2
        )
        for row, v in values.items()
    ]


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
        self._values = {
            (row.test, row.driver, row.nbytes, row.impl, row.metric): row.value for row in rows
        }

    def get(
        self, test: str, metric: str, nbytes: int, impl: str = "zerohop", driver: str = "cpp"
    ) -> float | None:
        return self._values.get((test, driver, nbytes, impl, metric))

    def by_size(
        self, test: str, metric: str, impl: str = "zerohop", driver: str | None = None
    ) -> dict[int, float]:
        """The values over the size of the message, in rising order; driver None: whichever there is."""
        found = {
            nbytes: value
            for (name, loop, nbytes, who, what), value in self._values.items()
            if (name, who, what) == (test, impl, metric) and driver in (None, loop)
        }
        return dict(sorted(found.items()))

    def sizes(self, test: str) -> list[int]:
        """The message sizes of `test`, by whomever measured, in rising order."""
        return sorted({nbytes for name, _, nbytes, _, _ in self._values if name == test})

    def tests(self) -> list[str]:
        return list(dict.fromkeys(test for test, *_ in self._values))

    def has(self, impl: str) -> bool:
        return any(who == impl for _, _, _, who, _ in self._values)

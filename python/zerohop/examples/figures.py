"""Figures of an example, as the benchmarks keep theirs: a header and rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerohop.bench.rows import Row, header, write_json

__all__ = ["Measured", "write_figures"]


@dataclass(frozen=True)
class Measured:
    """What was found of one case. figures: metric, value, unit; nbytes: of one message."""

    test: str
    route: str
    device: str
    nbytes: int
    figures: tuple[tuple[str, float, str], ...]
    by: str = "host"  # who communicates


def write_figures(path: Path, suite: str, cases: Iterable[Measured], **settings: Any) -> None:
    """settings: what else the header says."""
    rows = [
        Row(
            suite=suite,
            test=case.test,
            route=case.route,
            device=case.device,
            memory=case.device.partition(":")[0],
            driver=case.by,
            nbytes=case.nbytes,
            impl="zerohop",
            metric=metric,
            value=value,
            unit=unit,
        )
        for case in cases
        for metric, value, unit in case.figures
    ]
    write_json(path, header(suite, settings), rows)

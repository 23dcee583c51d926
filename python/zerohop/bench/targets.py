"""Targets for the figures: each Target is a line of the issue that asked for the feature."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from zerohop.bench.rows import OURS, Figures, Row
from zerohop.host import human_bytes, human_seconds

ALL_SIZES = range(1 << 62)
ONE_GPU = "not judged: one GPU"


def up_from(nbytes: int) -> Container[int]:
    return range(nbytes, ALL_SIZES.stop)


@dataclass(frozen=True)
class Verdict:
    target: str
    measured: str
    met: bool | None  # None: not measured, or not judged
    unjudged: str = ""  # why the measured figure is not judged


class Of(NamedTuple):
    """A figure at every size. driver None: any."""

    test: str
    metric: str = "bandwidth"
    impl: str = OURS
    driver: str | None = None


@dataclass(frozen=True)
class Target:
    """The figure named `said` must be at most (or at least) `bound`, at the worst of the sizes.

    It is the figure `of`, or combined by `by` with another one.
    """

    said: str
    bound: float
    of: Of
    other: Of | None = None
    by: Callable[[float, float], float] = operator.truediv
    at_least: bool = False
    sizes: Container[int] = ALL_SIZES

    def judge(self, figures: Figures) -> Verdict:
        target = f"{self.said} {'>=' if self.at_least else '<='} {self._shown(self.bound)}"
        values = {n: v for n, v in figures.by_size(*self.of).items() if n in self.sizes}
        if self.other is not None:
            others = figures.by_size(*self.other)
            values = {n: self.by(v, others[n]) for n, v in values.items() if n in others}
        if not values:
            return Verdict(target, "", None)
        worst, best = max, min
        if self.at_least:
            worst, best = min, max
        nbytes = worst(values, key=values.__getitem__)
        value = values[nbytes]
        measured = self._shown(value)
        if nbytes:
            measured += f" at {human_bytes(nbytes)}"
        if len(values) > 1:
            measured += f", best {self._shown(best(values.values()))}"
        return Verdict(
            target, measured, value >= self.bound if self.at_least else value <= self.bound
        )

    def _shown(self, value: float) -> str:
        if self.other is not None and self.by is operator.truediv:
            return f"{value:.4g}"
        if self.of.metric == "bandwidth":
            return f"{value / 1e9:.4g} GB/s"
        return human_bytes(value) if self.of.metric == "rss_per_peer" else human_seconds(value)


def verdicts(targets: Sequence[Target], rows: Iterable[Row]) -> list[Verdict]:
    """With both ends on one GPU none is judged: processes take turns of milliseconds, and copies stay inside it."""
    rows = list(rows)
    found = [target.judge(Figures(rows)) for target in targets]
    if any(len(ends := row.memory.split(" -> ")) == 2 and ends[0] == ends[1] for row in rows):
        found = [
            verdict if verdict.met is None else replace(verdict, met=None, unjudged=ONE_GPU)
            for verdict in found
        ]
    return found

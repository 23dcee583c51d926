"""Targets for the figures: each Target is a line of the issue that asked for the feature."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from zerohop.bench.rows import DRIVERS, OURS, Figures, Row
from zerohop.host import human_bytes, human_seconds

ALL_SIZES = range(1 << 62)
ONE_GPU = "not judged: one GPU"
MORE_IS_BETTER = ("bandwidth", "rate")
SAID = {"p50": "median", "one_way": "one way", "per_call": "a call", "posted": "to post"}


def up_from(nbytes: int) -> range:
    return range(nbytes, ALL_SIZES.stop)


def only(nbytes: int) -> range:
    return range(nbytes, nbytes + 1)


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
    """The figure `of`, or combined by `by` with the other one, must reach `bound` at the worst of the sizes.

    Rates must be at least that, other figures at most.
    """

    of: Of
    bound: float
    other: Of | None = None
    sizes: range = ALL_SIZES
    by: Callable[[float, float], float] = operator.truediv

    def __str__(self) -> str:
        """Of the other figure only what differs."""
        words = [*([] if self.of.impl == OURS else [f"{self.of.impl}:"]), self.of.test]
        words += [SAID.get(self.of.metric, self.of.metric), *self._size, *_by(self.of)]
        if other := self.other:
            words.append("-" if self.by is operator.sub else "/")
            pairs = ((self.of.test, other.test), (self.of.impl, other.impl))
            words += [theirs for ours, theirs in pairs if ours != theirs]
            words += _by(other)
        return " ".join([*words, ">=" if self._at_least else "<=", self._shown(self.bound)])

    @property
    def _at_least(self) -> bool:
        return self.of.metric in MORE_IS_BETTER

    @property
    def _size(self) -> list[str]:
        first, end = self.sizes.start, self.sizes.stop
        if self.sizes == ALL_SIZES:
            return []
        if end == ALL_SIZES.stop:
            return ["from", human_bytes(first)]
        last = ["to", human_bytes(end - 1)] if end > first + 1 else []
        return ["of", human_bytes(first), *last]

    def judge(self, figures: Figures) -> Verdict:
        values = {n: v for n, v in figures.by_size(*self.of).items() if n in self.sizes}
        if self.other is not None:
            others = figures.by_size(*self.other)
            values = {n: self.by(v, others[n]) for n, v in values.items() if n in others}
        if not values:
            return Verdict(str(self), "", None)
        worst, best = (min, max) if self._at_least else (max, min)
        nbytes = worst(values, key=values.__getitem__)
        value = values[nbytes]
        measured = self._shown(value)
        if nbytes:
            measured += f" at {human_bytes(nbytes)}"
        if len(values) > 1:
            measured += f", best {self._shown(best(values.values()))}"
        return Verdict(
            str(self), measured, value >= self.bound if self._at_least else value <= self.bound
        )

    def _shown(self, value: float) -> str:
        if self.other is not None and self.by is operator.truediv:
            return f"{value:.4g}"
        if self.of.metric == "bandwidth":
            return f"{value / 1e9:.4g} GB/s"
        return human_bytes(value) if self.of.metric == "rss_per_peer" else human_seconds(value)


def _by(figure: Of) -> list[str]:
    return ["by", DRIVERS[figure.driver]] if figure.driver else []


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

"""Which of the figures of tests/vm/bench meet their targets."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from vm.targets import verdicts
from zerohop.bench.plan import KIB, MIB
from zerohop.bench.rows import Figures, Row


def row(test: str, nbytes: int, metric: str, value: float, **others: str) -> Row:
    fixed = {"suite": "perftest", "route": "host", "device": "rxe0", "memory": "host"}
    fields = {**fixed, "driver": "cpp", "impl": "zerohop", "unit": "s", **others}
    return Row(test=test, nbytes=nbytes, metric=metric, value=value, **fields)


def judged(rows: Iterable[Row], cores: int = 4) -> list[bool]:
    return [verdict.met for verdict in verdicts(Figures(rows), cores)]


@pytest.mark.parametrize(("ours", "met"), [(97.0, True), (96.9, False), (200.0, True)])
def test_bandwidth_of_each_size(ours: float, met: bool) -> None:
    rows = []
    for nbytes, value in ((64 * KIB, 100.0), (MIB, ours)):
        rows.append(row("write", nbytes, "bandwidth", value))
        rows.append(row("write", nbytes, "bandwidth", 100.0, impl="perftest"))
    assert judged(rows) == [True, met]


@pytest.mark.parametrize(("ours", "met"), [(1.05, True), (1.06, False)])
def test_latency_is_that_of_a_write_without_notification(ours: float, met: bool) -> None:
    rows = [
        row("write_latency", 8, "p50", ours * 8e-6),
        row("write_latency", 8, "p50", 8e-6, impl="perftest"),
        row("latency", 8, "p50", 99e-6),
    ]
    assert judged(rows) == [met]


def rails(two: float, *moved: float) -> list[Row]:
    shares = [row("two_rails", MIB, f"rail{i}_bytes", value) for i, value in enumerate(moved)]
    one = row("one_rail", MIB, "bandwidth", 1.0)
    return [one, row("two_rails", MIB, "bandwidth", two), *shares]


@pytest.mark.parametrize(
    ("cores", "two", "moved", "met"),
    [
        (8, 1.7, (50, 50), True),
        (8, 1.6, (50, 50), False),
        (4, 1.0, (50, 50), True),
        (4, 1.0, (60, 40), False),
        (4, 1.7, (60, 40), True),
    ],
)
def test_two_rails_carry_more_or_equal_shares(cores, two, moved, met) -> None:
    assert judged(rails(two, *moved), cores) == [met]

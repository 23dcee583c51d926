"""Rates between two samples of the counters of a process."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from zerohop.observe.metrics import LATENCY
from zerohop.observe.sources import Answer

_SAMPLE = re.compile(r"(zerohop_[a-z_]+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\\\|\\n|\\")*)"(?:,|$)')
_NAMES = ("endpoint", "peer", "route", "device")  # labels of a row
_CONNECTED = "zerohop_connected"
_ESCAPED = re.compile(r"\\(.)")

Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]  # by metric


@dataclass
class Row:
    """The figures of one route to one peer. Rates are per second; latencies are seconds, NaN if nothing ended.

    is_there: connected now.
    """

    process: str
    endpoint: str
    peer: str
    route: str
    device: str
    operations: float = 0.0
    bytes_out: float = 0.0
    bytes_in: float = 0.0
    notifications: float = 0.0
    under_way: int = 0
    p50: float = math.nan
    p99: float = math.nan
    failures: int = 0  # total
    is_there: bool = True
    buckets: dict[float, float] = field(default_factory=dict, repr=False)  # by bound, cumulative


def parsed(text: str) -> Samples:
    samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        labels = ((name, _ESCAPED.sub(_plain, value)) for name, value in _LABEL.findall(sample[2]))
        value = _number(sample[3])
        if math.isfinite(value):
            samples[sample[1]][frozenset(labels)] = value
    return samples


def _number(text: str) -> float:
    """NaN: not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def rows_between(before: Answer | None, now: Answer) -> list[Row]:
    """Rates since `before`; without one they are 0, and latencies cover all operations so far.

    Unused routes have no row, except a row without a route if that is all there is of a peer.
    Disconnected peers have rows only for their errors.
    """
    old: Samples = parsed(before.text) if before is not None else {}
    new = parsed(now.text)
    passed = now.at - before.at if before is not None else math.inf
    table = _Table(now.source.name, old)
    for labels, value in new.get("zerohop_transfers_under_way", {}).items():
        table.row(labels).under_way = int(value)
    for labels, value in new.get("zerohop_failures_total", {}).items():
        table.row(labels).failures = int(value)
    ever: defaultdict[int, float] = defaultdict(float)  # total operations of each row
    for labels, count in new.get("zerohop_operations_total", {}).items():
        ever[id(table.row(labels))] += count
    for labels, count in table.grown("zerohop_operations_total", new):
        table.row(labels).operations += count / passed
    for labels, count in table.grown("zerohop_notifications_total", new):
        table.row(labels).notifications += count / passed
    for labels, count in table.grown("zerohop_bytes_total", new):
        row = table.row(labels)
        if ("direction", "out") in labels:
            row.bytes_out += count / passed
        else:
            row.bytes_in += count / passed
    for labels, count in table.grown(f"{LATENCY}_bucket", new):
        values = dict(labels)
        if values.get("operation") == "recv":  # waits for the peer as long as that takes
            continue
        bound = _number(values.get("le", "inf"))
        if math.isnan(bound):
            continue
        buckets = table.row(labels).buckets
        buckets[bound] = buckets.get(bound, 0.0) + count
    connected = {_connection(labels): count for labels, count in new.get(_CONNECTED, {}).items()}
    for row in table.rows.values():
        row.is_there = connected.get((row.endpoint, row.peer), 1) > 0
    rows = [row for row in table.rows.values() if _is_shown(row, ever[id(row)])]
    idle = {who for who, count in connected.items() if count > 0}
    idle -= {(row.endpoint, row.peer) for row in rows}
    rows += [Row(now.source.name, *who, route="", device="") for who in sorted(idle)]
    for row in rows:
        row.p50, row.p99 = quantile(0.5, row.buckets), quantile(0.99, row.buckets)
    return rows


def _connection(labels: Labels) -> tuple[str, str]:
    values = dict(labels)
    return values.get("endpoint", ""), values.get("peer", "")


def _is_shown(row: Row, operations: float) -> bool:
    """operations: in total."""
    if row.failures:
        return True
    return row.operations > 0 or row.notifications > 0 or (row.is_there and operations > 0)


class _Table:
    def __init__(self, process: str, old: Samples) -> None:
        self._process, self._old = process, old
        self.rows: dict[tuple[str, ...], Row] = {}

    def row(self, labels: Labels) -> Row:
        values = dict(labels)
        endpoint, peer, route, device = (values.get(name, "") for name in _NAMES)
        key = endpoint, peer, route, device
        if key not in self.rows:
            self.rows[key] = Row(self._process, endpoint, peer, route, device)
        return self.rows[key]

    def grown(self, metric: str, new: Samples) -> list[tuple[Labels, float]]:
        """A counter that has fallen was reset by a new connection."""
        old = self._old.get(metric, {})
        return [
            (labels, value - old.get(labels, 0.0) if value >= old.get(labels, 0.0) else value)
            for labels, value in new.get(metric, {}).items()
        ]


def quantile(share: float, buckets: Mapping[float, float]) -> float:
    """Assumes that values are spread evenly in their bucket; NaN: there are none."""
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return math.nan
    rank = share * buckets[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound] - below
        if buckets[bound] >= rank and count > 0:
            return lower if math.isinf(bound) else lower + (bound - lower) * (rank - below) / count
        lower, below = bound, buckets[bound]
    return lower

"""Counters of Endpoints and their Peers in the Prometheus text exposition format 0.0.4."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zerohop import _core

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]

# Metrics by name: type and help. A counter's name ends in _total.
METRICS: dict[str, tuple[str, str]] = {
    "zerohop_peers": ("gauge", "Peers that are connected now."),
    "zerohop_connected": ("gauge", "Connections to this peer; 0: the last one has ended."),
    "zerohop_operations_total": ("counter", "Transfers that this process started."),
    "zerohop_bytes_total": ("counter", "Bytes of the transfers that this process started."),
    "zerohop_notifications_total": ("counter", "Notifications that this process sent."),
    "zerohop_failures_total": ("counter", "Transfers that ended with an error."),
    "zerohop_transfers_under_way": ("gauge", "Transfers in flight."),
    "zerohop_mapped_chunks": ("gauge", "Chunks of the peer's GPU memory that are mapped now."),
    "zerohop_mapped_bytes": ("gauge", "Bytes of the peer's GPU memory that are mapped now."),
    "zerohop_unanswered_total": ("counter", "Times that the peer did not answer where memory is."),
    "zerohop_rail_serving": ("gauge", "Peers whose transfers this rail carries now."),
    "zerohop_rail_work_requests_total": ("counter", "Work requests posted to the device."),
    "zerohop_rail_doorbells_total": ("counter", "Chains of work requests posted."),
    "zerohop_rail_bytes_total": ("counter", "Bytes posted: out by write and send, in by read."),
    "zerohop_rail_messages_received_total": ("counter", "Messages received over the device."),
    "zerohop_rail_notifications_received_total": (
        "counter",
        "Notifications received over the device; the sender counts those by p2p.",
    ),
    "zerohop_rail_queue_full_total": ("counter", "Calls that waited for room in the send queue."),
    "zerohop_rail_queue_pair_errors_total": ("counter", "Queue pairs that had to be replaced."),
    "zerohop_registration_cache_total": ("counter", "Lookups and evictions of the cache."),
    "zerohop_registration_cache_entries": ("gauge", "Registrations of GPU memory."),
    "zerohop_registration_cache_bytes": ("gauge", "GPU memory that is registered."),
}

LATENCY = "zerohop_latency_seconds"
_LATENCY_HELP = "From posting a transfer to its successful end."
_BOUNDS = tuple(2**power / 1e9 for power in range(7, 37))  # seconds: 128 ns to 68.7 s

_RAIL = {
    "zerohop_rail_serving": "serves",
    "zerohop_rail_work_requests_total": "work_requests",
    "zerohop_rail_doorbells_total": "doorbells",
    "zerohop_rail_messages_received_total": "messages_in",
    "zerohop_rail_notifications_received_total": "notifications_in",
    "zerohop_rail_queue_full_total": "queue_full",
    "zerohop_rail_queue_pair_errors_total": "queue_pair_errors",
}
_ROUTE = {
    "zerohop_notifications_total": "notifications_out",
    "zerohop_failures_total": "failures",
    "zerohop_transfers_under_way": "under_way",
}
_MAPPED = {"zerohop_mapped_chunks": "chunks_mapped", "zerohop_mapped_bytes": "nbytes_mapped"}
_OPERATIONS = ("write", "read", "atomic", "send", "recv")
_DIRECTIONS = (("out", "bytes_out"), ("in", "bytes_in"))

Sample = tuple[str, Labels, int]  # metric, labels, value


@dataclass
class _Latency:
    counts: list[int] = field(default_factory=lambda: [0] * len(_BOUNDS))  # cumulative
    count: int = 0
    total: float = 0.0  # seconds

    def add(self, histogram: dict[str, Any]) -> None:
        self.count += histogram["count"]
        self.total += histogram["sum"]
        for bound, count in histogram["buckets"]:
            for place in range(bisect_left(_BOUNDS, bound), len(_BOUNDS)):
                self.counts[place] += count


def prometheus(*endpoints: _core.Endpoint) -> str:
    """The counters of ``Peer.stats()`` and of the Endpoints, in the text format of Prometheus.

    endpoints: include their Peers that are connected now, and the last 64 names of disconnected ones,
    whose ``zerohop_connected`` is 0. Serve the text as ``text/plain; version=0.0.4``; it queries no peer and no device.

    Every metric begins with ``zerohop_``; counters end in ``_total``; amounts of data are bytes. Labels:
    ``endpoint`` and ``peer`` (their names; those with equal names are added up), ``route`` and ``device`` (of a
    Route, as in ``peer.stats()["routes"]``), ``operation`` (write, read, atomic, send, recv), ``direction`` (out: from
    this process, in: to it), ``rail`` (the verbs device) and ``event`` (of the registration cache). The
    histogram ``zerohop_latency_seconds`` has buckets at powers of two of nanoseconds, for each operation that
    occurred, including ``notify`` (a notification alone); ``help(zh.Peer.stats)`` says what it counts.

    Source: https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    for endpoint in endpoints:
        if not isinstance(endpoint, _core.Endpoint):
            raise TypeError(f"prometheus() takes Endpoints, not {endpoint!r}")
    sums: dict[str, dict[Labels, int]] = {name: {} for name in METRICS}
    latencies: defaultdict[Labels, _Latency] = defaultdict(_Latency)
    for endpoint in endpoints:
        own: Labels = (("endpoint", endpoint.name),)
        samples = list(_of_endpoint(endpoint, own))
        for connection in endpoint.stats()["connections"]:
            who: Labels = (*own, ("peer", connection["peer"]))
            samples += _of_connection(who, connection)
            for labels, latency in _latencies(who, connection):
                latencies[labels].add(latency)
        for name, labels, value in samples:
            sums[name][labels] = sums[name].get(labels, 0) + value
    text = "".join(_family(name, samples) for name, samples in sums.items() if samples)
    return text + _histograms(latencies)


def _of_endpoint(endpoint: _core.Endpoint, own: Labels) -> Iterator[Sample]:
    peers = endpoint.peers
    yield "zerohop_peers", own, len(peers)
    cache = endpoint.registration_cache
    for event in ("hits", "misses", "evictions", "stale"):
        yield "zerohop_registration_cache_total", (*own, ("event", event)), cache[event]
    yield "zerohop_registration_cache_entries", own, cache["entries"]
    yield "zerohop_registration_cache_bytes", own, cache["nbytes"]
    for peer in peers:
        yield from _of_peer((*own, ("peer", peer.name)), peer.stats())


def _of_peer(who: Labels, stats: dict[str, Any]) -> Iterator[Sample]:
    for row in stats["routes"]:
        if row["route"] == "p2p" and row["device"] != "cpu":
            yield from ((name, _where(who, row), row[key]) for name, key in _MAPPED.items())
    for rail in stats["rails"]:
        where = (*who, ("rail", rail["device"]))
        yield from ((name, where, int(rail[key])) for name, key in _RAIL.items())
        yield from _directions("zerohop_rail_bytes_total", where, rail)
    if "p2p" in stats:
        yield "zerohop_unanswered_total", who, stats["p2p"]["unanswered"]


def _of_connection(who: Labels, connection: dict[str, Any]) -> Iterator[Sample]:
    yield "zerohop_connected", who, int(connection["ended"] is None)
    for row in connection["routes"]:
        where = _where(who, row)
        for operation in _OPERATIONS:
            count = row[f"{operation}s"]
            yield "zerohop_operations_total", (*where, ("operation", operation)), count
        yield from _directions("zerohop_bytes_total", where, row)
        yield from ((name, where, row[key]) for name, key in _ROUTE.items())


def _latencies(who: Labels, stats: dict[str, Any]) -> Iterator[tuple[Labels, dict[str, Any]]]:
    for row in stats["routes"]:
        for operation, latency in row["latency"].items():
            yield (*_where(who, row), ("operation", operation)), latency


def _where(who: Labels, row: dict[str, Any]) -> Labels:
    return (*who, ("route", row["route"]), ("device", row["device"]))


def _directions(name: str, labels: Labels, row: dict[str, Any]) -> Iterator[Sample]:
    return ((name, (*labels, ("direction", way)), row[key]) for way, key in _DIRECTIONS)


def _family(name: str, samples: dict[Labels, int]) -> str:
    kind, text = METRICS[name]
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += (f"{name}{{{_shown(labels)}}} {value}" for labels, value in samples.items())
    return "\n".join(lines) + "\n"


def _histograms(latencies: Mapping[Labels, _Latency]) -> str:
    if not latencies:
        return ""
    lines = [f"# HELP {LATENCY} {_LATENCY_HELP}", f"# TYPE {LATENCY} histogram"]
    for labels, latency in latencies.items():
        shown = _shown(labels)
        for bound, count in zip(_BOUNDS, latency.counts, strict=True):
            lines.append(f'{LATENCY}_bucket{{{shown},le="{bound}"}} {count}')
        lines.append(f'{LATENCY}_bucket{{{shown},le="+Inf"}} {latency.count}')
        lines.append(f"{LATENCY}_sum{{{shown}}} {latency.total}")
        lines.append(f"{LATENCY}_count{{{shown}}} {latency.count}")
    return "\n".join(lines) + "\n"


def _shown(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

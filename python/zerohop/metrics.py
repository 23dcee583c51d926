"""Counters of Endpoints and their Peers as Prometheus reads them: its text exposition format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from zerohop import _core

if TYPE_CHECKING:
    from zerohop.endpoint import Endpoint

__all__ = ["prometheus"]

Labels = tuple[tuple[str, str], ...]

# Metrics by name: type and help. A counter's name ends in _total.
METRICS: dict[str, tuple[str, str]] = {
    "zerohop_peers": ("gauge", "Peers that are connected now."),
    "zerohop_operations_total": ("counter", "Transfers that this process began."),
    "zerohop_bytes_total": ("counter", "Bytes of the transfers that this process began."),
    "zerohop_notifications_total": ("counter", "Notifications that this process put."),
    "zerohop_failures_total": ("counter", "Transfers that ended with an error."),
    "zerohop_transfers_under_way": ("gauge", "Transfers that have begun and not ended."),
    "zerohop_mapped_chunks": ("gauge", "Chunks of the peer's GPU memory that are mapped now."),
    "zerohop_mapped_bytes": ("gauge", "Bytes of the peer's GPU memory that are mapped now."),
    "zerohop_unanswered_total": ("counter", "Times that the peer did not say where memory is."),
    "zerohop_rail_serving": ("gauge", "Peers whose transfers this rail carries now."),
    "zerohop_rail_work_requests_total": ("counter", "Work requests posted to the device."),
    "zerohop_rail_doorbells_total": ("counter", "Chains of work requests posted."),
    "zerohop_rail_bytes_total": ("counter", "Bytes posted: out by write and send, in by read."),
    "zerohop_rail_messages_received_total": ("counter", "Messages that came over the device."),
    "zerohop_rail_notifications_received_total": (
        "counter",
        "Notifications that came over the device: those by p2p are counted by who puts them.",
    ),
    "zerohop_rail_queue_full_total": ("counter", "Calls that waited for room."),
    "zerohop_rail_queue_pair_errors_total": ("counter", "Queue pairs that had to be replaced."),
    "zerohop_registration_cache_total": ("counter", "Look-ups and losses of the cache."),
    "zerohop_registration_cache_entries": ("gauge", "Registrations of GPU memory."),
    "zerohop_registration_cache_bytes": ("gauge", "GPU memory that is registered."),
}

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


def prometheus(*endpoints: Endpoint) -> str:
    """The counters of ``Peer.stats()`` and of the Endpoints, as a Prometheus server scrapes them.

    endpoints: whose Peers that are connected now are told of. Serve it as
    ``text/plain; version=0.0.4``; it asks no peer and no device.

    Every metric begins with ``zerohop_``; counters end in ``_total``; amounts of data are bytes. Labels:
    ``endpoint`` and ``peer`` (their names; those of one name are added up), ``route`` and ``device`` (of a
    Route, as in ``peer.stats()["routes"]``), ``operation`` (write, read, atomic, send, recv), ``direction`` (out: from
    this process, in: to it), ``rail`` (the verbs device) and ``event`` (of the registration cache).

    Source: https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    for endpoint in endpoints:
        if not isinstance(endpoint, _core.Endpoint):
            raise TypeError(f"prometheus() tells of Endpoints, not of {endpoint!r}")
    sums: dict[str, dict[Labels, int]] = {name: {} for name in METRICS}
    for endpoint in endpoints:
        for name, labels, value in _of_endpoint(endpoint):
            known = sums[name]
            known[labels] = known.get(labels, 0) + value
    return "".join(_told(name, samples) for name, samples in sums.items() if samples)


def _of_endpoint(endpoint: Endpoint) -> Iterator[Sample]:
    own: Labels = (("endpoint", endpoint.name),)
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
        where = (*who, ("route", row["route"]), ("device", row["device"]))
        for operation in _OPERATIONS:
            count = row[f"{operation}s"]
            yield "zerohop_operations_total", (*where, ("operation", operation)), count
        yield from _directions("zerohop_bytes_total", where, row)
        yield from ((name, where, row[key]) for name, key in _ROUTE.items())
        if row["route"] == "p2p" and row["device"] != "cpu":
            yield from ((name, where, row[key]) for name, key in _MAPPED.items())
    for rail in stats["rails"]:
        where = (*who, ("rail", rail["device"]))
        yield from ((name, where, int(rail[key])) for name, key in _RAIL.items())
        yield from _directions("zerohop_rail_bytes_total", where, rail)
    if "p2p" in stats:
        yield "zerohop_unanswered_total", who, stats["p2p"]["unanswered"]


def _directions(name: str, labels: Labels, row: dict[str, Any]) -> Iterator[Sample]:
    return ((name, (*labels, ("direction", way)), row[key]) for way, key in _DIRECTIONS)


def _told(name: str, samples: dict[Labels, int]) -> str:
    kind, text = METRICS[name]
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += (f"{name}{{{_shown(labels)}}} {value}" for labels, value in samples.items())
    return "\n".join(lines) + "\n"


def _shown(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

"""The Prometheus text, read back by a parser that takes nothing but the format."""

import re
from typing import Any

import numpy as np
import pytest
import zerohop as zh

Labels = frozenset[tuple[str, str]]
HELP = re.compile(r"# HELP ([a-z_]+) (\S.*)")
TYPE = re.compile(r"# TYPE ([a-z_]+) (counter|gauge|histogram)")
SAMPLE = re.compile(r"([a-z_]+)\{(.*)\} (-?\d+|\d+\.\d+(?:e-\d+)?|\d+e-\d+)")
PARTS = ("_bucket", "_sum", "_count")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\\\|\\n|\\")*)"(,|$)')


def parse(text: str) -> dict[str, dict[Labels, float]]:
    """Samples by metric and labels. Each metric is one block: HELP, TYPE, samples, all different.

    Those of a histogram are under the name of each of its parts.
    """
    assert text.endswith("\n")
    metrics: dict[str, dict[Labels, float]] = {}
    open_names: tuple[str, ...] = ()  # of the block
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("# HELP"):
            name = matched(HELP, line)[1]
            kind = matched(TYPE, next(lines))
            assert kind[1] == name
            assert name not in metrics
            assert name.startswith("zerohop_")
            assert name.endswith("_total") == (kind[2] == "counter")
            open_names = (name,)
            if kind[2] == "histogram":
                open_names = tuple(name + part for part in PARTS)
            metrics.update({each: {} for each in open_names})
            continue
        sample = matched(SAMPLE, line)
        assert sample[1] in open_names
        labels = frozenset(labels_of(sample[2]))
        assert labels not in metrics[sample[1]]
        assert sample[1].endswith("_sum") or sample[3].lstrip("-").isdecimal()
        metrics[sample[1]][labels] = float(sample[3])
    assert all(metrics.values())
    return metrics


def matched(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    found = pattern.fullmatch(line)
    assert found is not None, line
    return found


def labels_of(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        label = LABEL.match(text, at)
        assert label is not None, text[at:]
        value = re.sub(r"\\(.)", lambda part: "\n" if part[1] == "n" else part[1], label[2])
        found.append((label[1], value))
        at = label.end()
    assert len({name for name, _ in found}) == len(found)
    return found


def value(metrics: dict[str, dict[Labels, float]], name: str, **labels: str) -> float:
    wanted = frozenset(labels.items())
    [one] = [count for known, count in metrics[name].items() if wanted <= known]
    return one


@pytest.mark.parametrize("p2p", [False, True])
def test_what_was_moved_is_in_the_text(p2p):
    with (
        zh.Endpoint("soft0", name="here", p2p=p2p) as ep,
        zh.Endpoint("soft0", name="there", p2p=p2p) as other,
    ):
        peer = ep.connect(other.address)
        local, target = ep.empty(1000), other.empty(1000)
        remote = target.remote
        peer.write(local, remote, notify=(1, 2)).wait()
        peer.write(local[:10], remote[:10]).wait()
        peer.read(remote, local).wait()
        metrics = parse(zh.prometheus(ep))
        way = {
            "endpoint": "here",
            "peer": "there",
            "route": "p2p" if p2p else "host",
            "device": "cpu" if p2p else "soft0",
        }
        assert value(metrics, "zerohop_operations_total", operation="write", **way) == 2
        assert value(metrics, "zerohop_operations_total", operation="read", **way) == 1
        assert value(metrics, "zerohop_operations_total", operation="send", **way) == 0
        assert value(metrics, "zerohop_bytes_total", direction="out", **way) == 1010
        assert value(metrics, "zerohop_bytes_total", direction="in", **way) == 1000
        assert value(metrics, "zerohop_notifications_total", **way) == 1
        assert value(metrics, "zerohop_failures_total", **way) == 0
        assert value(metrics, "zerohop_transfers_under_way", **way) == 0
        assert value(metrics, "zerohop_peers", endpoint="here") == 1
        rail = {"endpoint": "here", "peer": "there", "rail": "soft0"}
        assert value(metrics, "zerohop_rail_serving", **rail) == 1
        moved = 0 if p2p else 1010
        assert value(metrics, "zerohop_rail_bytes_total", direction="out", **rail) == moved
        assert ("zerohop_unanswered_total" in metrics) == p2p
        assert value(metrics, "zerohop_registration_cache_total", event="hits") == 0


def test_names_are_escaped():
    name = 'back\\slash "quoted", {x="1"} \\n'
    with zh.Endpoint("soft0", name=name) as ep:
        assert value(parse(zh.prometheus(ep)), "zerohop_peers", endpoint=name) == 0


def test_those_of_one_name_are_added_up():
    with zh.Endpoint("soft0", name="hub", p2p=False) as ep:
        others = [zh.Endpoint("soft0", name="worker", p2p=False) for _ in range(2)]
        for other in others:
            target = other.empty(10)
            ep.connect(other.address).write(np.ones(10, "u1"), target.remote).wait()
            other.accept()  # from then on the peer is counted on that side, too
        metrics = parse(zh.prometheus(ep, *others))
        assert (
            value(metrics, "zerohop_bytes_total", direction="out", endpoint="hub", route="host")
            == 20
        )
        assert value(metrics, "zerohop_peers", endpoint="worker") == 2
        assert value(metrics, "zerohop_rail_serving", endpoint="hub", peer="worker") == 2
        for other in others:
            other.close()


def test_the_keys_of_stats_are_those_that_are_documented():
    with zh.Endpoint("soft0", p2p=True) as ep, zh.Endpoint("soft0", p2p=True) as other:
        peer = ep.connect(other.address)
        stats: dict[str, Any] = peer.stats()
        said = re.findall(r"\w+", str(type(peer).stats.__doc__))
        rows = [stats, stats["p2p"], *stats["routes"], *stats["rails"]]
        assert {key for row in rows for key in row} <= set(said)
        shape = set(stats["routes"][0])
        assert all(set(row) == shape for row in stats["routes"])
        assert ("p2p", "cpu") in [(row["route"], row["device"]) for row in stats["routes"]]


def test_latencies_are_a_histogram():
    with zh.Endpoint("soft0", name="here") as ep, zh.Endpoint("soft0", name="there") as other:
        peer = ep.connect(other.address)
        local, target = ep.empty(1000), other.empty(1000)
        for _ in range(20):
            peer.write(local, target.remote).wait()
        peer.read(target.remote, local).wait()
        peer.notify(1, 1).wait()
        metrics = parse(zh.prometheus(ep))
        [row] = [row for row in peer.stats()["routes"] if row["latency"]]
        name = "zerohop_latency_seconds"
        counts = {"write": 20, "read": 1, "notify": 1}
        assert {key: reported["count"] for key, reported in row["latency"].items()} == counts
        for operation, count in counts.items():
            assert value(metrics, f"{name}_count", operation=operation) == count
            total = value(metrics, f"{name}_sum", operation=operation)
            assert total == pytest.approx(row["latency"][operation]["sum"])
            check_buckets(
                {
                    float(dict(labels)["le"]): counted
                    for labels, counted in metrics[f"{name}_bucket"].items()
                    if ("operation", operation) in labels
                },
                row["latency"][operation],
            )


def check_buckets(served: dict[float, float], reported: dict[str, Any]) -> None:
    """served: of Prometheus, by bound, each with all below it; own: of stats()."""
    bounds = sorted(served)
    assert bounds[-1] == float("inf")
    assert served[bounds[-1]] == reported["count"]
    for bound in bounds:
        assert served[bound] == sum(count for upper, count in reported["buckets"] if upper <= bound)
    shortest, longest = reported["buckets"][0][0], reported["buckets"][-1][0]
    least = 0.0 if shortest <= 64e-9 else shortest / 1.5  # the first bucket has no lower bound
    assert least <= reported["p50"] <= reported["p90"] <= reported["p99"] <= longest
    assert reported["sum"] > 0


def test_what_was_counted_with_a_peer_stays_when_it_is_gone():
    """Its last errors are what is asked for then; and one that comes back goes on from there."""
    way = {"endpoint": "hub", "peer": "worker"}
    with zh.Endpoint("soft0", name="hub", p2p=False) as ep:
        for visit in (1, 2):
            with zh.Endpoint("soft0", name="worker", p2p=False) as other:
                peer = ep.connect(other.address)
                gone = other.empty(10)
                remote = gone.remote
                peer.write(np.ones(10, "u1"), remote).wait()
                gone.close()
                with pytest.raises(zh.VerbsError):
                    peer.write(np.ones(10, "u1"), remote).wait()
                metrics = parse(zh.prometheus(ep))
                assert value(metrics, "zerohop_connected", **way) == 1
            with pytest.raises(zh.PeerLost):
                peer.recv(np.ones(10, "u1")).wait(timeout=30)
            metrics = parse(zh.prometheus(ep))
            assert value(metrics, "zerohop_peers", endpoint="hub") == 0
            assert value(metrics, "zerohop_connected", **way) == 0
            assert value(metrics, "zerohop_failures_total", route="host", **way) == 2 * visit
            assert (
                value(metrics, "zerohop_bytes_total", direction="out", route="host", **way)
                == 20 * visit
            )
        stats = ep.stats()
        [row] = [row for row in stats["routes"] if row["writes"]]
        assert (stats["peers"], row["writes"], row["failures"]) == (0, 4, 4)
        [one] = stats["connections"]
        assert one["peer"] == "worker"
        assert "its endpoint was closed" in one["ended"]
        [row] = [row for row in one["routes"] if row["writes"]]
        assert (row["writes"], row["failures"]) == (4, 4)
    assert ep.stats() == stats | {"nbytes_registered": 0}
    assert value(parse(zh.prometheus(ep)), "zerohop_failures_total", route="host", **way) == 4


def test_an_endpoint_adds_its_peers_up():
    with zh.Endpoint("soft0", name="hub", p2p=False) as ep:
        assert ep.stats() == {
            "peers": 0,
            "routes": [],
            "connections": [],
            "faults": {},
            "nbytes_registered": 0,
        }
        others = [zh.Endpoint("soft0", name=f"worker {n}", p2p=False) for n in range(2)]
        for count, other in enumerate(others, start=1):
            target = other.empty(10)
            peer = ep.connect(other.address)
            for _ in range(count):
                peer.write(np.ones(10, "u1"), target.remote, notify=(1, 1)).wait()
        stats = ep.stats()
        assert stats["peers"] == 2
        [row] = [row for row in stats["routes"] if row["writes"]]
        of_one = [row for row in ep.peers[0].stats()["routes"] if row["writes"]]
        assert set(row) == set(of_one[0])
        assert (row["route"], row["writes"], row["bytes_out"]) == ("host", 3, 30)
        assert (row["notifications_out"], row["failures"], row["under_way"]) == (3, 0, 0)
        assert row["latency"]["write"]["count"] == 3
        assert sum(count for _, count in row["latency"]["write"]["buckets"]) == 3
        assert [one["peer"] for one in stats["connections"]] == ["worker 0", "worker 1"]
        assert [one["ended"] for one in stats["connections"]] == [None, None]
        for other in others:
            other.close()

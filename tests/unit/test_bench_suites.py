"""`zerohop bench host`, `wait`, `collectives`, `verbs`, `registration` and `python`, run for real, as short as shows that all is measured."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.bench_players import FarPair, reported
from support.patience import patient
from zerohop import _core
from zerohop.bench import calls, collectives, host, pair, plan, python, registration, verbs, wait
from zerohop.bench.command import COMMANDS
from zerohop.bench.placement import FREE, TOGETHER
from zerohop.bench.plan import KIB, MIB, Options, Order
from zerohop.bench.rows import OURS, Row
from zerohop.bench.workers import serve
from zerohop.local import Ranks

LARGE = 64 * KIB
SIZES = (8, LARGE)
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Figures of this machine are not judged here."""
    monkeypatch.setattr(plan, "QUICK_SECONDS", 0.002)
    monkeypatch.setattr(calls, "BATCHES", 3)
    monkeypatch.setattr(wait, "QUICK_SECONDS", 0.002)
    monkeypatch.setattr(wait, "JOBS", (3,))
    monkeypatch.setattr(collectives, "JOBS", (2, 3))


def measured(
    suite: ModuleType,
    path: Path,
    peers: tuple[str, ...],
    sizes: tuple[int, ...] = SIZES,
    **others: Any,
) -> tuple[str, dict[str, Any], Rows]:
    options = Options("soft0", peers, True, sizes, path, **others)
    good, text = reported(suite.make, options)
    assert good, text
    head, *rows = json.loads(path.read_text())
    assert [r for r in rows if not 0 < r["value"] < float("inf")] == []
    assert {r["turns"] for r in rows if r["impl"] == OURS} == {2}
    absent = [a for a in head.get("not_available", ()) if not a["test"]]
    assert all("install" in a["reason"] or a["impl"] == "perftest" for a in absent), absent
    return text, head, rows


@pytest.mark.timeout(400)
def test_host_arrays_go_all_ways_beside_every_peer_that_is_there(tmp_path):
    text, head, rows = measured(host, tmp_path / "rows.json", COMMANDS["host"].peers, (LARGE,))
    ours = {(r["test"], r["driver"], r["memory"], r["nbytes"]) for r in rows if r["impl"] == OURS}
    assert ours == {
        (test, driver, part, LARGE)
        for part in host.PARTS
        for test in (host.CHECKED_TESTS if part.startswith(host.CHECKED) else host.TESTS)
        for driver in ("cpp", "python")
    }
    assert {(r["memory"], r["route"]) for r in rows if r["impl"] == OURS} == {
        ("empty", "p2p"),
        ("numpy", "p2p"),
        ("device", "host"),
        ("checked", "p2p"),
        ("checked device", "host"),
    }
    absent = {a["impl"] for a in head["not_available"] if not a["test"]}
    whole = {
        "mpi": {"send_latency", "send", "write", "read"},
        "nixl": {"latency", "write", "read"},
        "gloo": {"send_latency", "send"},
        "torch": {"write_latency", "write", "read"},
    }
    for peer in set(whole) - absent:
        found = {(r["test"], r["nbytes"]) for r in rows if r["impl"] == peer}
        assert found == {(test, LARGE) for test in whole[peer]}
    for label in host.PARTS.values():
        assert label in text
    assert "Set for zerohop, by the device, as between hosts: p2p=0" in text
    settings = {"gloo": "GLOO_SOCKET_IFNAME=lo", "mpi": "--oversubscribe --bind-to none"}
    for peer in set(settings) - absent:
        assert head["settings"][peer] == settings[peer]


def test_without_p2p_what_the_device_does_is_measured(monkeypatch):
    monkeypatch.setattr(pair, "Pair", FarPair)
    good, text = reported(host.make, Options("soft0", quick=True, sizes=(8,)))
    assert good
    assert text.count("the route is host, not p2p: forbidden here") == 3  # once each part
    assert "by the device, as between hosts" in text
    assert "targets" not in text


@pytest.mark.timeout(patient(400))
def test_two_processes_wait_where_they_are_placed_and_jobs_beside_all_who_are_there(tmp_path):
    peers = COMMANDS["wait"].peers
    text, head, rows = measured(wait, tmp_path / "rows.json", peers, placements=(TOGETHER, FREE))
    absent = {a["impl"].split(",")[0] for a in head.get("not_available", ()) if not a["test"]}
    everybody = {OURS, "pipe", "tcp", "tcp yielding", "mpi", "gloo"} - absent
    pairs = {(r["placement"], r["impl"]) for r in rows if r["test"] == wait.LATENCY}
    assert pairs == {(place, who) for place in (TOGETHER, FREE) for who in everybody}
    routes = {r["route"] for r in rows if (r["impl"], r["test"]) == (OURS, wait.LATENCY)}
    assert routes == {"p2p", "host"}
    jobs = {(r["test"], r["nbytes"], r["impl"]) for r in rows if r["test"] != wait.LATENCY}
    assert jobs == {
        (f"{call}_3", nbytes, who)
        for call, sizes in wait.CALLS.items()
        for nbytes in sizes
        for who in everybody & {OURS, "mpi", "gloo"}
    }
    assert {r["placement"] for r in rows if r["test"] != wait.LATENCY} == {FREE}
    for said in ("zerohop p2p", "zerohop soft0", "all_gather 64 KiB, 3 ranks", "targets"):
        assert said in text


@pytest.mark.timeout(patient(400))
def test_calls_of_all_ranks_are_measured_over_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(collectives, "QUICK", collectives.MEASURED)
    peers = COMMANDS["collectives"].peers
    text, head, rows = measured(collectives, tmp_path / "rows.json", peers)
    absent = {a["impl"].split(",")[0] for a in head.get("not_available", ()) if not a["test"]}
    everybody = {OURS, collectives.SOFT, "mpi", "gloo"} - absent
    assert {(r["test"], r["nbytes"], r["impl"]) for r in rows} >= {
        (f"{call}_{ranks}", nbytes, who)
        for call in collectives.MEASURED
        for ranks in (2, 3)
        for nbytes in SIZES
        for who in everybody
    }
    assert {r["route"] for r in rows if r["impl"] == collectives.SOFT} == {"host"}
    for said in (
        "all_reduce, 3 ranks, bus bandwidth",
        "reduce_scatter, 2 ranks, a call",
        "targets",
    ):
        assert said in text


def test_sizes_whose_arrays_do_not_fit_into_memory_are_left_out(monkeypatch):
    monkeypatch.setattr(collectives, "SHARE_OF_FREE", 1.0)
    options = Options(peers=("mpi",), sizes=(MIB, 8 * MIB), ranks=(2, 4))
    contenders = 3  # ours, soft0 and mpi

    def made(blocks):
        """In memory for so many blocks of 8 MiB of each contender."""
        free = blocks * 8 * MIB * contenders / collectives.SHARE_OF_ALL
        monkeypatch.setattr(collectives, "available_memory", lambda: free)
        suite = collectives.make(options)
        steps = {
            nbytes: {s.test for s in suite.steps if s.nbytes == nbytes} for nbytes in options.sizes
        }
        return steps, {row["test"]: row["reason"] for row in suite.absences.as_rows()}

    tests = {f"{call}_{ranks}" for call in collectives.MEASURED for ranks in (2, 4)}
    assert made(blocks=32) == ({MIB: tests, 8 * MIB: tests}, {})
    steps, left_out = made(blocks=6)
    two_blocks = {"all_reduce_2", "broadcast_2", "all_reduce_4", "broadcast_4"}
    assert steps == {MIB: tests, 8 * MIB: two_blocks | {"all_gather_2", "reduce_scatter_2"}}
    assert left_out == dict.fromkeys(tests - steps[8 * MIB], "left out for lack of memory: 8 MiB")


def test_bus_bandwidth_counts_what_a_rank_sends():
    def of(test, nbytes=1200):
        return collectives.bus_nbytes(
            Row("collectives", test, "p2p", "", "host", "python", nbytes, OURS, "p50", 1.0, "s")
        )

    assert of("all_reduce_2") == 1200
    assert of("all_reduce_4") == 1800
    assert of("reduce_scatter_4") == of("all_gather_4") == of("all_to_all_4") == 3600
    assert of("broadcast_4") == 1200


@pytest.mark.timeout(300)
def test_queue_pairs_are_measured_from_python_and_from_cpp(tmp_path):
    text, head, rows = measured(verbs, tmp_path / "rows.json", ("raw", "perftest"))
    expected = {(test, nbytes) for test in verbs.SIZED for nbytes in SIZES}
    expected |= {(test, 8) for test in (*verbs.INLINE, *verbs.ATOMIC)}
    for impl, driver in ((OURS, "python"), ("raw", "cpp")):
        found = [r for r in rows if r["impl"] == impl]
        assert {(r["test"], r["nbytes"]) for r in found} == expected
        assert {r["driver"] for r in found} == {driver}
    units = {r["test"]: r["unit"] for r in rows}
    assert (units["fetch_add_rate"], units["write"], units["send_latency"]) == ("1/s", "B/s", "s")
    assert [a["impl"] for a in head["not_available"]] == ["perftest"]
    assert "libibverbs devices, and soft0 is not one" in text
    assert (head["device"], head["provider"]) == ("soft0", "softhca")


def test_a_device_that_is_not_there_is_reported():
    good, text = reported(verbs.make, Options("mlx9_9", quick=True))
    assert not good
    assert "zerohop bench failed: " in text
    assert "mlx9_9" in text


@pytest.mark.timeout(300)
def test_registering_is_measured_by_size_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(registration._core, "gpu_count", lambda: 0)
    text, head, rows = measured(registration, tmp_path / "rows.json", ("raw",))
    found = {(r["impl"], r["test"], r["metric"], r["nbytes"]) for r in rows}
    for impl in (OURS, "raw"):
        assert found >= {(impl, "fresh", m, n) for m in ("register", "close") for n in SIZES}
        assert found >= {(impl, "again", "register", n) for n in SIZES}
    assert [a["reason"] for a in head["not_available"]] == [registration.NO_GPU]
    assert "again register <= 2 us" in text


@pytest.mark.timeout(300)
def test_calls_are_measured_from_python_and_from_cpp(tmp_path):
    text, head, rows = measured(python, tmp_path / "rows.json", (), (LARGE,))
    found = {(r["test"], r["driver"], r["memory"]) for r in rows}
    tests = set(calls.CALLS)
    assert found >= {(test, "python", part) for test in tests for part in python.PARTS}
    metrics = {(r["test"], r["metric"]) for r in rows}
    assert metrics >= {(test, metric) for test in calls.CALLS for metric in ("per_call", "p99")}
    only_python = {"write_and_await"}
    assert {test for test, driver, _ in found if driver == "cpp"} == tests - only_python
    assert {r["route"] for r in rows} == {"p2p", "host"}
    assert "not_available" not in head  # it has no peers
    assert "await peer.write(...)" in text
    assert "post_write a call by Python - by C++ <= 1 us" in text


def test_a_write_is_seen_without_a_notification_by_both_drivers():
    with Ranks(serve, 2, pair.Pair, "soft0", 4096) as ranks:
        for test, nbytes, times in (
            *(("write_latency", nbytes, 40) for nbytes in (8, 1, 8, 512)),
            ("send_latency", 64, 30),
        ):
            for driver in plan.DRIVERS:
                first, second = ranks.ask(Order(test, driver, nbytes, times))
                assert len(first) == len(second) == times
                assert all(seconds > 0 for seconds in first)
        assert ranks.ask("facts")[0]["mtu"] >= 256
        ranks.tell(None)
        ranks.results()


@pytest.fixture
def ends():
    with zh.Endpoint("soft0", timeout=10.0) as here, zh.Endpoint("soft0", timeout=10.0) as there:
        arena = here.empty((4, 64), "uint8")
        np.asarray(arena)[:] = 0
        inbox = there.empty(64)
        yield here.connect(there.address), arena, inbox.remote


def test_a_ball_that_does_not_come_back_ends_the_loop(ends):
    peer, arena, far = ends
    with pytest.raises(zh.TransferTimeout, match="did not end in time"):
        _core.bench_memory_ping_pong(peer, arena[0], far, arena[1], 10, True, 0.2)


@pytest.mark.parametrize("part", [np.s_[:, 3], np.s_[0, :0]])
def test_memory_that_cannot_be_polled_is_refused(ends, part):
    peer, arena, far = ends
    with pytest.raises(ValueError, match="contiguous, on the host, and not empty"):
        _core.bench_memory_ping_pong(peer, arena[0], far, arena[part], 1, True, 1.0)

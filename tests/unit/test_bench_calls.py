"""`zerohop bench verbs`, `registration` and `python`, run for real, as short as shows that all is measured."""

import json
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from support.bench_players import sentences
from zerohop.bench import overhead, plan, python, registration
from zerohop.bench.peer import PeerFailed
from zerohop.bench.peers import perftest
from zerohop.bench.plan import KIB, Options
from zerohop.bench.verbs import plan as verbs_plan
from zerohop.bench.verbs import suite as verbs_suite

SIZES = (8, 64 * KIB)
TABLE = """
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      2000             30.07              29.54              0.000473
---------------------------------------------------------------------------------------
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "QUICK_SECONDS", 0.002)
    monkeypatch.setattr(overhead, "BATCHES", 3)


def measured(
    suite: ModuleType, path: Path, *peers: str
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    console = Console(file=StringIO(), width=200)
    good = suite.run(Options("soft0", peers, True, SIZES, path), console)
    text = sentences(console.file.getvalue())
    assert good, text
    head, *rows = json.loads(path.read_text())
    assert all(0 < row["value"] < float("inf") for row in rows)
    assert {row["turns"] for row in rows} == {2}
    return text, head, rows


@pytest.mark.timeout(300)
def test_queue_pairs_are_measured_from_python_and_from_cpp(tmp_path: Path) -> None:
    text, head, rows = measured(verbs_suite, tmp_path / "rows.json", "raw", "perftest")
    expected = {(test, nbytes) for test in verbs_plan.SIZED for nbytes in SIZES}
    expected |= {(test, 8) for test in (*verbs_plan.INLINE, *verbs_plan.ATOMIC)}
    for impl, driver in (("zerohop", "python"), ("raw", "cpp")):
        found = [(r["test"], r["nbytes"]) for r in rows if r["impl"] == impl]
        assert set(found) == expected
        assert {r["driver"] for r in rows if r["impl"] == impl} == {driver}
    units = {r["test"]: r["unit"] for r in rows}
    assert (units["fetch_add_rate"], units["write"], units["send_latency"]) == ("1/s", "B/s", "s")
    (absent,) = head["not_available"]
    assert absent["impl"] == "perftest"
    assert "devices of libibverbs, of which soft0 is none" in text
    assert (head["device"], head["provider"]) == ("soft0", "softhca")


def test_a_device_that_is_not_there_is_told() -> None:
    console = Console(file=StringIO(), width=200)
    assert not verbs_suite.run(Options("mlx9_9", quick=True), console)
    assert "zerohop bench failed: " in console.file.getvalue()
    assert "mlx9_9" in console.file.getvalue()


def test_tables_of_perftest_are_read() -> None:
    assert perftest.parse(TABLE, "ib_write_bw", 65536, 2000)[1] == 29.54
    assert perftest.parse(TABLE, "ib_write_bw", 65536, 500)[1] == 29.54  # of four queue pairs
    for nbytes, times in ((8, 2000), (65536, 3000)):
        with pytest.raises(PeerFailed, match="ib_write_bw printed no figures that can be read"):
            perftest.parse(TABLE, "ib_write_bw", nbytes, times)


def test_every_test_of_perftest_is_one_of_ours() -> None:
    theirs = {*perftest.LATENCIES, *perftest.BANDWIDTHS, *perftest.SEVERAL}
    assert theirs <= set(verbs_plan.TESTS)
    ((test, (_, queue_pairs)),) = perftest.SEVERAL.items()
    assert verbs_plan.TESTS[test].queue_pairs == queue_pairs


@pytest.mark.timeout(300)
def test_registering_is_measured_by_size_and_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(registration._core, "gpu_count", lambda: 0)
    text, head, rows = measured(registration, tmp_path / "rows.json", "raw")
    found = {(r["impl"], r["test"], r["metric"], r["nbytes"]) for r in rows}
    for impl in ("zerohop", "raw"):
        assert found >= {(impl, "fresh", m, n) for m in ("register", "close") for n in SIZES}
        assert found >= {(impl, "again", "register", n) for n in SIZES}
    assert found >= {("zerohop", f"{kind}_numpy", "register", 64) for kind in ("view", "views")}
    (absent,) = head["not_available"]
    assert absent["reason"] == registration.NO_GPU
    assert "register, again <= 2 us" in text
    assert "10000 views of one array" in text


def test_memory_of_a_gpu_is_registered_with_the_cache_and_without(monkeypatch) -> None:
    monkeypatch.setattr(registration._core, "gpu_count", lambda: 1)
    made = registration.make(Options("soft0", quick=True))
    memories = {entrant.memory: entrant for entrant in made.entrants}
    assert set(memories) == set(registration.LABELS)
    knobs = {memory: entrant.player._arguments[-1] for memory, entrant in memories.items()}
    assert knobs[registration.CACHED] == {}
    assert knobs[registration.UNCACHED] == {"registration_cache": 0}
    assert memories[registration.CACHED].player._arguments[-2] == 0  # its ordinal


@pytest.mark.timeout(300)
def test_calls_are_measured_from_python_and_from_cpp(tmp_path: Path) -> None:
    text, head, rows = measured(python, tmp_path / "rows.json")
    found = {(r["test"], r["driver"], r["memory"]) for r in rows}
    tests = {*overhead.CALLS, *python.LATENCIES}
    assert found >= {(test, "python", part) for test in tests for part in python.PARTS}
    metrics = {(r["test"], r["metric"]) for r in rows}
    assert metrics >= {(test, metric) for test in overhead.CALLS for metric in ("per_call", "p99")}
    only_python = {"write_and_await", "register_again"}
    assert {test for test, driver, _ in found if driver == "cpp"} == tests - only_python
    assert {r["route"] for r in rows} == {"p2p", "host"}
    assert "not_available" not in head  # it has no peers
    assert "await peer.write(...)" in text
    assert "posting a write from Python - from C++ <= 1 us" in text

"""`zerohop bench wait`: a ping-pong in every placement, calls of jobs, and what is told of them."""

import json
import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.bench_players import sentences
from support.patience import patient
from zerohop.bench import placement, plan
from zerohop.bench.placement import APART, FREE, PLACEMENTS, TOGETHER
from zerohop.bench.plan import KIB, Options
from zerohop.bench.rows import Row
from zerohop.bench.turns import OURS
from zerohop.bench.wait import suite
from zerohop.bench.wait.plan import CALLS, LATENCY, job_test
from zerohop.bench.wait.tables import parts
from zerohop.bench.wait.targets import verdicts


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as shows that everything is there: figures of this machine are not judged here."""
    monkeypatch.setattr(suite, "QUICK_SECONDS", 0.002)
    monkeypatch.setattr(suite, "JOBS", (3,))
    monkeypatch.setattr("zerohop.bench.wait.plan.JOBS", (3,))


@pytest.mark.timeout(patient(400))
def test_two_processes_in_every_placement_and_jobs_beside_all_who_are_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    console = Console(file=StringIO(), width=200)
    peers = ("pipe", "tcp", "mpi", "gloo")
    good = suite.run(Options(peers=peers, quick=True, json_path=path), console)
    text = sentences(console.file.getvalue())
    assert good, text
    head, *rows = json.loads(path.read_text())
    absences = head.get("not_available", ())
    absent = {each["impl"].split(",")[0]: each["reason"] for each in absences if not each["test"]}
    assert all("install" in reason for reason in absent.values()), absent
    everybody = {OURS, "pipe", "tcp", "tcp yielding", "mpi", "gloo"} - set(absent)
    assert [row for row in rows if not 0 < row["value"] < float("inf")] == []
    possible = set(filter(placement.possible, PLACEMENTS))
    pairs = {(r["placement"], r["impl"]) for r in rows if r["test"] == LATENCY}
    assert pairs == {(place, who) for place in possible for who in everybody}
    routes = {r["route"] for r in rows if (r["impl"], r["test"]) == (OURS, LATENCY)}
    assert routes == {"p2p", "host"}
    jobs = {(r["test"], r["nbytes"], r["impl"]) for r in rows if r["test"] != LATENCY}
    assert jobs == {
        (job_test(call, 3), nbytes, who)
        for call, sizes in CALLS.items()
        for nbytes in sizes
        for who in everybody & {OURS, "mpi", "gloo"}
    }
    assert {r["placement"] for r in rows if r["test"] != LATENCY} == {FREE}
    for said in ("zerohop p2p", "zerohop soft0", "all_gather 64 KiB, 3 ranks", "targets"):
        assert said in text


def taken(test: str, impl: str, value: float, **others) -> Row:
    fields = {"route": "", "placement": FREE, "nbytes": 8, **others}
    return Row("wait", test, driver="python", impl=impl, metric="p50", unit="s", value=value,
               device="", memory="host", **fields)  # fmt: skip


def test_tables_show_p99_below_p50_by_placement_and_by_who() -> None:
    def both(test: str, impl: str, value: float, **others) -> list[Row]:
        p50 = taken(test, impl, value, **others)
        return [p50, replace(p50, metric="p99", value=9 * value, steady=False)]

    rows = [
        *both(LATENCY, OURS, 1e-6, route="p2p", placement=TOGETHER),
        *both(LATENCY, OURS, 2e-6, route="host"),
        *both(LATENCY, "pipe", 3e-6),
        *both("barrier_4", OURS, 4e-6, nbytes=0),
        *both("barrier_4", "mpi", 5e-6, nbytes=0),
    ]
    (part,) = parts(rows)
    first, second = part.grids
    assert (first.columns, first.lines) == (
        [TOGETHER, FREE],
        [
            ("zerohop p2p", ["1 us\n~9 us", ""]),
            ("zerohop soft0", ["", "2 us\n~18 us"]),
            ("pipe", ["", "3 us\n~27 us"]),
        ],
    )
    assert (second.columns, second.lines) == (
        [OURS, "mpi", "/ mpi"],
        [("barrier, 4 ranks", ["4 us\n~36 us", "5 us\n~45 us", "0.80"])],
    )
    assert "ends: free" in second.title


def test_targets_are_those_of_one_core_and_of_the_worst_job() -> None:
    one = {"placement": TOGETHER}
    rows = [
        taken(LATENCY, OURS, 7e-6, route="p2p", **one),
        taken(LATENCY, OURS, 16e-6, route="host", **one),
        taken(LATENCY, OURS, 1.0, route="p2p"),
        taken(LATENCY, "pipe", 4e-6, **one),
        taken(LATENCY, "tcp yielding", 12e-6, **one),
        *(taken(f"barrier_{n}", OURS, us * 1e-6, nbytes=0) for n, us in ((2, 1), (4, 9))),
        *(taken(f"barrier_{n}", "mpi", 3e-6, nbytes=0) for n in (2, 4)),
        *(taken(f"barrier_{n}", "gloo", 10e-6, nbytes=0) for n in (2, 4)),
    ]
    assert [(v.target, v.measured, v.met) for v in verdicts(rows)] == [
        ("8 B by p2p / pipe, one core <= 1.5", "1.75 (7 us to 4 us)", False),
        ("8 B by soft0 / tcp yielding, one core <= 1.5", "1.33 (16 us to 12 us)", True),
        ("barrier / mpi, free <= 1.5", "3.00 with 4 ranks", False),
        ("barrier / gloo, free <= 1", "0.90 with 4 ranks", True),
    ]


def test_ends_are_placed_on_cores_first_and_on_their_other_threads_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3", "4-5", "4-5")):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(7)))
    assert placement.usable_cores(tmp_path) == [0, 1, 4, 6, 2, 3, 5]
    placed: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: placed.append(set(cores)))
    monkeypatch.setattr(placement, "usable_cores", lambda: [0, 4])
    for place in (APART, TOGETHER, FREE):
        for rank in range(3):
            placement.place(place, rank)
    assert placed == [{0}, {4}, {0}, {0}, {0}, {0}]


def test_a_call_without_bytes_has_a_window() -> None:
    assert plan.window(0) == plan.LARGEST_WINDOW
    assert CALLS["broadcast"] == (8, 64 * KIB)

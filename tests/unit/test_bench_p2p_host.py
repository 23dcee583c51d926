"""`zerohop bench p2p --host`: between host arrays for real, and what it makes of ucx and of its absence."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from support.bench_players import no_p2p_work, sentences
from zerohop.bench import p2p, ucx
from zerohop.bench.p2p import in_host_memory
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import GIB, KIB, MIB, Options, plan_of
from zerohop.bench.rows import Row
from zerohop.bench.turns import Absences
from zerohop.cli import main


@pytest.fixture
def short_host_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as shows that everything is there: figures of this machine are not judged here."""
    short = replace(plan_of(Options(sizes=(8, 64 * KIB), quick=True), GIB, ()), seconds=0.005)
    monkeypatch.setattr(in_host_memory, "make_plan", lambda *arguments: short)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("short_host_plan")
def test_host_arrays_are_measured_with_both_drivers_in_both_kinds_of_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    arguments = ["--host", "--verbs", "soft0", "--vs", "raw", "--json", str(path)]
    result = CliRunner().invoke(main, ["bench", "p2p", *arguments])
    assert result.exit_code == 0, result.output
    assert "plain NumPy memory" in result.output
    head, *rows = json.loads(path.read_text())
    assert {(r["test"], r["driver"], r["memory"], r["nbytes"]) for r in rows} == {
        (test, driver, memory, nbytes)
        for test in in_host_memory.TESTS
        for driver in ("cpp", "python")
        for memory in ("empty", "numpy")
        for nbytes in (8, 64 * KIB)
    }
    assert {(r["route"], r["device"], r["impl"]) for r in rows} == {("p2p", "soft0", "zerohop")}
    assert all(0 < r["value"] < float("inf") for r in rows)
    assert "leave out --host" in head["not_available"][0]["reason"]


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def host_suite(short_host_plan, monkeypatch, tmp_path) -> Any:
    """Of which only ucx is measured, and of programs there are those that a test makes in tmp_path."""
    monkeypatch.setattr(in_host_memory.HostSuite, "_ours", lambda *arguments: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    def run() -> tuple[dict[tuple[str, str], str], list[Row]]:
        absences, rows = Absences(), []
        options = Options(peers=("ucx",))
        suite = in_host_memory.HostSuite(
            options, in_host_memory.make_plan(), rows, absences, {"device": ""}
        )
        suite._ranks = dict.fromkeys(in_host_memory.MEMORIES)
        for test in in_host_memory.TESTS:
            suite._take_turns(test, 8)
        return absences.reasons, rows

    return run


def test_ucx_that_is_missing_is_a_sentence(host_suite) -> None:
    reasons, rows = host_suite()
    assert rows == []
    assert reasons == {("ucx", ""): "ucx_perftest is not installed: apt-get install ucx-utils"}


def test_ucx_that_fails_one_way_is_a_sentence_for_that_way(
    host_suite, tmp_path, monkeypatch
) -> None:
    program(tmp_path / "ucx_info", "echo '# Version 1.2.3'")
    program(tmp_path / "ucx_perftest", "exit 9")

    def run(test: str, nbytes: int, iterations: int, rank: int, way: ucx.Way) -> dict[str, float]:
        if way is ucx.CMA:
            raise PeerFailed("no permission")
        return {
            "iterations": 100,
            "overall_lat": 2.0,
            "50.0_percentile_lat": 1.0,
            "overall_bw": 3.0,
        }

    monkeypatch.setattr(ucx, "_run", run)
    reasons, rows = host_suite()
    tests = ("write_latency", "write", "read")
    assert reasons == {("ucx cma", test): "no permission" for test in tests}
    assert {(r.test, r.memory, r.route, r.impl) for r in rows} == {
        (test, "empty", "posix,cma", "ucx") for test in tests
    }


def test_ucx_is_run_in_the_way_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], dict[str, str]]] = []

    def pair(server: list[str], client: list[str], port: int, environment: dict[str, str]) -> str:
        ran.append((client, environment))
        return "iterations,50.0_percentile_lat,overall_lat,overall_bw\n3,1.0,9e9,2.0\n"

    monkeypatch.setattr(ucx, "require_program", lambda name, package: name)
    monkeypatch.setattr(ucx, "run_pair", pair)
    assert ucx.bandwidth("read", 64, 0.01, ucx.CMA) == 2 * MIB
    assert ucx.latency(64, 0.01, (50,), ucx.POSIX)["p50"] == 1e-6
    (cma, _), (posix, environment) = ran
    assert {"get", "cma", "zcopy"} <= set(cma)
    assert "ucp_put_lat" in posix
    assert environment["UCX_TLS"] == "posix,cma"


@pytest.mark.usefixtures("short_host_plan")
def test_without_p2p_nothing_is_measured_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_host_memory, "work", no_p2p_work)
    console = Console(file=StringIO(), width=200)
    assert not p2p.run(Options(host=True), console)
    text = sentences(console.file.getvalue())
    assert "the route is host, not p2p: forbidden here" in text
    assert "zerohop bench failed: no kind of memory is copied by p2p here" in text

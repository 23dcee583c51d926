"""`zerohop bench p2p` as far as it goes without a GPU: between host arrays, and its GPU part on stand-ins."""

import json
import os
import re
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from support.bench_players import Dies, Hangs, HostOurs, HostRaw, Unfit, host_look, no_p2p_work
from zerohop.bench import p2p, ucx
from zerohop.bench.p2p import between_gpus, in_host_memory, plan, torch_ipc
from zerohop.bench.p2p.ours import BALL, GATE, Ours
from zerohop.bench.p2p.targets import gpu_verdicts, host_verdicts
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import GIB, KIB, MIB, Options, Order, plan_of
from zerohop.bench.rows import Figures, Row
from zerohop.bench.turns import Absences, Contestant
from zerohop.cli import main
from zerohop.local import RankFailed


def row(test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop", **others) -> Row:
    fixed = {"suite": "p2p", "route": "p2p", "device": "", "memory": "", "driver": "python"}
    fields = {**fixed, "unit": "s", **others}
    return Row(test=test, nbytes=nbytes, metric=metric, value=value, impl=impl, **fields)


def rate(test: str, nbytes: int, value: float, impl: str = "zerohop", **others) -> Row:
    return row(test, nbytes, "bandwidth", value, impl, **others)


def judged(*rows: Row) -> dict[str, tuple[bool, str]]:
    return {v.target: (v.met, v.measured) for v in gpu_verdicts(Figures(rows))}


# --- the plan ---


def test_arenas_of_all_contestants_fit_into_the_fuller_gpu() -> None:
    options = Options(peers=("raw", "torch", "nccl"))
    assert plan.gpu_plan(options, 140 * GIB, 2).left_out == ()
    for gpus in (1, 2):
        made = plan.gpu_plan(options, 8 * GIB, gpus)
        arenas = 4 if gpus == 2 else 8
        assert arenas * 2 * max(made.sizes) <= 8 * GIB
        assert GIB in made.left_out
    assert plan.gpu_plan(Options(quick=True), 140 * GIB, 2).sizes == plan.QUICK_SIZES


def test_an_arena_holds_what_every_test_moves() -> None:
    small = plan.gpu_plan(Options(sizes=(8,)), 140 * GIB, 2)
    half = plan.arena_nbytes(small) // 2
    assert half >= max(plan.BLOCKS_NBYTES, 8192 * plan.HALO_PITCH)
    assert [plan.BLOCKS_NBYTES // block for block in plan.BLOCK_TESTS.values()] == [
        16384,
        4096,
        1024,
    ]


# --- the targets ---


def test_writes_are_judged_from_256_mib_against_each_peer() -> None:
    rows = [rate("write", MIB, 1.0), rate("write", MIB, 9.0, "raw")]
    for nbytes, ours in ((256 * MIB, 98.0), (GIB, 100.0)):
        rows += [rate("write", nbytes, ours), rate("write", nbytes, 100.0, "raw")]
    rows.append(rate("write", GIB, 90.0, "nccl"))
    assert judged(*rows) == {
        "write from 256 MiB / raw >= 0.99": (False, "0.980 at 256 MiB, best 1.000"),
        "write from 256 MiB / nccl >= 1.05": (True, "1.111 at 1 GiB, best 1.111"),
    }


def test_notifications_are_judged_by_size() -> None:
    times = {8: 4.4e-6, 4 * KIB: 4.6e-6, 64 * KIB: 5.9e-6, MIB: 9.1e-6, 16 * MIB: 60e-6}
    rows = [row("stream_notify", nbytes, "one_way", value) for nbytes, value in times.items()]
    assert [met for met, _ in judged(*rows).values()] == [True, False, True, False]


def test_calls_lists_and_directions_are_judged() -> None:
    rows = [
        row("post_write", 8, "per_call", 4.1e-6),
        row("stream_notify", 8, "per_call", 3.9e-6),
        row("mapping", GIB, "first", 1.9e-3),
        row("mapping", GIB, "cached", 2.1e-6),
        rate("write_many_4k", 64 * MIB, 281e9),
        rate("write_many_16k", 64 * MIB, 319e9),
        rate("write_many_64k", 64 * MIB, 341e9),
        rate("halo", 512 * KIB, 9.0),
        rate("halo", 512 * KIB, 1.0, "raw"),
        rate("write", GIB, 100.0),
        rate("read", GIB, 96.0),
        rate("both", GIB, 189.0),
    ]
    assert [met for met, _ in judged(*rows).values()] == [
        *(False, True, True, False),
        *(True, False, True, False),
        *(True, False),
    ]


def test_a_mapping_of_less_than_1_gib_is_not_judged() -> None:
    assert judged(row("mapping", MIB, "first", 1.0)) == {}


def test_host_targets_are_judged_from_cpp_and_notifications_only_of_mapped_memory() -> None:
    rows = [
        row("write_latency", 8, "p50", 0.3e-6, driver="cpp"),
        row("write_latency", 8, "p50", 0.11e-6, "ucx", driver="cpp"),
        row("latency", 8, "p50", 0.6e-6, driver="cpp"),
        row("latency", 8, "p50", 2.9e-6),
        rate("write", 64 * KIB, 94.0, driver="cpp"),
        rate("write", 64 * KIB, 999.0),
        rate("write", 64 * KIB, 100.0, "ucx", driver="cpp"),
    ]
    found = host_verdicts(Figures(rows), mapped=True)
    assert [verdict.met for verdict in found] == [False, True, False, True]
    assert len(host_verdicts(Figures(rows), mapped=False)) == 2


# --- ours ---


@pytest.mark.parametrize("first", [True, False])
def test_the_ping_pong_stands_before_the_gate_and_takes_turns(first, monkeypatch) -> None:
    monkeypatch.setattr("zerohop.bench.p2p.ours.ROUNDS", 2)
    done: list[Any] = []

    class Log:
        def wait_notify(self, slot: int, stream: int) -> None:
            done.append(("wait", slot, stream))

        def write(self, source: Any, target: Any, notify: Any, stream: int) -> None:
            done.append((source, target, notify, stream))

        def event(self) -> None:
            done.append("event")

        def __int__(self) -> int:
            return 77

    log = Log()
    side = SimpleNamespace(first=first, peer=log)
    Ours._enqueue(SimpleNamespace(_side=side, _stream=log, _endpoint=log), "from", "to")
    throws = [("from", "to", (BALL, value), 77) for value in (1, 2)]
    catch, gate = ("wait", BALL, 77), ("wait", GATE, 77)
    if first:
        assert done == [gate, "event", throws[0], catch, throws[1], catch, "event"]
    else:
        assert done == ["event", catch, throws[0], catch, throws[1], "event"]


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two "GPUs" in host memory, and little to move; of the peers, torch is unfit, and nccl dies."""
    for module in (plan, between_gpus):
        monkeypatch.setattr(module, "BLOCKS_NBYTES", 256 * KIB)
        monkeypatch.setattr(module, "HALO_TOTAL", 16 * plan.HALO_NBYTES)
    short = replace(plan.gpu_plan(Options(sizes=(8, 64 * KIB), quick=True), GIB, 2), seconds=0.01)
    monkeypatch.setattr(between_gpus, "gpu_plan", lambda *arguments: short)
    monkeypatch.setattr(between_gpus._core, "gpu_count", lambda: 2)
    monkeypatch.setattr(between_gpus, "look", host_look)
    monkeypatch.setattr(between_gpus, "Ours", HostOurs)
    monkeypatch.setitem(between_gpus.MAKERS, "raw", (HostRaw, 1))
    monkeypatch.setitem(between_gpus.MAKERS, "torch", (Unfit, 2))
    monkeypatch.setitem(between_gpus.MAKERS, "nccl", (Dies, 2))


def sentences(text: str) -> str:
    """Without the lines that tables draw."""
    return " ".join(re.sub(r"[^\x00-\x7f]", " ", text).split())


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("stand_ins")
def test_every_figure_between_gpus_is_taken_and_absent_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    peers = ("raw", "torch", "nccl", "ucx")
    options = Options("soft0", peers, quick=True, sizes=(8, 64 * KIB), json_path=path)
    console = Console(file=StringIO(), width=200)
    assert p2p.run(options, console), console.file.getvalue()
    head, *rows = json.loads(path.read_text())
    ours = {(r["test"], r["metric"], r["nbytes"]) for r in rows if r["impl"] == "zerohop"}
    assert ours >= {("write_latency", "p50", n) for n in (8, 64 * KIB)}
    assert ours >= {
        (test, "bandwidth", n) for test in ("write", "read", "both") for n in (8, 64 * KIB)
    }
    assert ours >= {(test, "bandwidth", 256 * KIB) for test in plan.BLOCK_TESTS}
    assert ours >= {("halo", "bandwidth", 1024), ("post_write", "per_call", 8)}
    assert ours >= {("mapping", "first", 256 * KIB), ("mapping", "cached", 256 * KIB)}
    raw = {(r["test"], r["metric"], r["nbytes"]) for r in rows if r["impl"] == "raw"}
    assert raw == {figure for figure in ours if figure[0] != "mapping"}
    assert all(r["value"] > 0 for r in rows if r["test"] != "mapping")
    assert {r["impl"] for r in rows} == {"zerohop", "raw"}
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    assert absent["zerohop", "stream_notify"] == "not available: no streams on this host"
    assert absent["torch", ""] == "PyTorch is made up"
    assert "exited with status 3" in absent["nccl", ""]
    assert "add --host" in absent["ucx", ""]
    assert "did not let go" in absent["raw", "its orderly end"]
    text = sentences(console.file.getvalue())
    for reason in absent.values():
        assert sentences(reason)[:40] in text
    assert "targets" in text
    assert (head["gpus"], head["cuda_driver"], head["dies"]) == (["Host"] * 2, 13000, "1.0")


def test_torch_that_is_missing_or_sees_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in torch_ipc.SAFE:
        monkeypatch.setenv(name, "1")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PeerFailed, match=r"not installed \(.*\): pip install torch"):
        torch_ipc.torch_with_gpus()
    blind = SimpleNamespace(__version__="2.9", cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", blind)
    with pytest.raises(PeerFailed, match=r"PyTorch 2\.9 sees no GPU"):
        torch_ipc.torch_with_gpus()
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"  # multicast stays off, whatever was set
    assert os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"


@pytest.mark.usefixtures("stand_ins")
def test_with_one_gpu_nccl_is_told_to_be_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(peers=("nccl",))
    absences = Absences()
    made = plan.gpu_plan(options, 8 * GIB, 1)
    between_gpus.Suite(options, made, (0, 0), [], absences, {})
    assert (
        absences.reasons["nccl", ""] == "NCCL takes one process per GPU, and there is one GPU here"
    )


def test_a_peer_that_hangs_is_ended_after_its_bound() -> None:
    peer = Contestant("nccl", 2, 60.0, Hangs)
    assert peer.ask("facts") == [{"dies": "1.0"}] * 2
    pids = peer._ranks.pids
    peer._ranks._silence = 1.0  # from here on, when its processes are there
    with pytest.raises(RankFailed, match="no word from rank 0, 1 for 1 s"):
        peer.ask(Order("write", "python", 8, 1))
    peer.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_a_gpu_the_command_says_so_and_what_host_does(monkeypatch) -> None:
    monkeypatch.setattr(between_gpus._core, "gpu_count", lambda: 0)
    result = CliRunner().invoke(main, ["bench", "p2p"])
    assert result.exit_code == 1
    assert "No GPU is visible to the driver" in result.output
    assert "--host measures p2p between host arrays" in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["p2p", "--vs", "raw,iperf3"], "'iperf3' is none of nccl, torch, raw, ucx"),
        (["p2p", "--sizes", "1T"], "'1T' is not a size from 8 to 1G"),
        (["p2p", "--plot", "x.jpeg"], "'x.jpeg' does not end in .png, .svg, .pdf"),
        (["soft", "--plot", "x.png"], "pip install 'zerohop[plot]'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, complaint, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # not installed
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


# --- between host arrays, for real ---


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
    assert "zerohop bench stopped: no kind of memory is copied by p2p here" in text

"""The benchmark's parts that need no second process: plan, rows, targets, and the words of its peers."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import patient
from zerohop.bench import peer, plan, python, registration
from zerohop.bench.peers import iperf3, ucx
from zerohop.bench.placement import TOGETHER, usable_cores
from zerohop.bench.plan import GIB, KIB, MIB, Options, Order
from zerohop.bench.rows import Figures, Row, header, settled, write_json
from zerohop.bench.targets import verdicts
from zerohop.bench.turns import Programs

UCX_TEXT = """
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 200,0.211,2752.434,2752.500,363.31,363.25,363,363
"""


def row(test: str, nbytes: int, metric: str, value: float, impl: str = "zerohop", **others) -> Row:
    fixed = {"suite": "soft", "route": "host", "device": "soft0", "memory": "host", "driver": "cpp"}
    fields = {**fixed, "unit": "s", **others}
    return Row(test=test, nbytes=nbytes, metric=metric, value=value, impl=impl, **fields)


def test_ucx_row_is_read_by_its_heading() -> None:
    found = ucx.parse(UCX_TEXT)
    assert found["50.0_percentile_lat"] == 0.211
    assert found["overall_lat"] == 2752.5
    assert found["overall_bw"] == 363.25


@pytest.mark.parametrize(
    "text", ["", "iterations,avg_lat\n", "iterations,avg_lat\n1,2,3\n", "iterations,a\nx,y\n"]
)
def test_ucx_output_without_figures_is_an_error(text: str) -> None:
    with pytest.raises(peer.PeerFailed, match="no figures"):
        ucx.parse(text)


def test_ucx_runs_once_more_only_when_the_first_run_was_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []

    def fake_run(
        test: str, nbytes: int, iterations: int, rank: int, way: ucx.Way
    ) -> dict[str, float]:
        runs.append(iterations)
        return {
            "iterations": float(iterations),
            "overall_lat": 10.0,
            "overall_bw": 2.0,
            f"{rank}.0_percentile_lat": 9.0,
        }

    monkeypatch.setattr(ucx, "_run", fake_run)
    assert ucx.bandwidth("write", 8, 1.0) == 2 * MIB
    assert ucx.bandwidth("write", 8, 1e-6) == 2 * MIB
    assert runs == [20, ucx.MOST, 20]
    expected = {"p50": 9e-6, "p99": 9e-6, "mean": 10e-6}
    assert ucx.latency(8, 1e-6, (50, 99)) == pytest.approx(expected)


def test_a_figure_is_the_median_of_all_and_steady_if_both_passes_agree() -> None:
    def passes(first: list[float], second: list[float], impl: str) -> list[list[Row]]:
        return [[row("write", 8, "bandwidth", v, impl) for v in taken] for taken in (first, second)]

    first, second = passes([5.0, 1.0], [2.0, 4.0], "zerohop")
    for more in (
        passes([5.0], [6.0], "tcp"),
        passes([5.0], [6.1], "ucx"),
        passes([7.0], [], "mpi"),
    ):
        first += more[0]
        second += more[1]
    expected = [
        ("zerohop", 3.0, 4, 2.0, True),
        ("tcp", 5.5, 2, 0.5, True),
        ("ucx", 5.55, 2, 0.55, False),
        ("mpi", 7.0, 1, 0.0, False),  # what was taken once is not known to be steady
    ]
    found = [
        (r.impl, r.value, r.turns, round(r.spread, 3), r.steady) for r in settled([first, second])
    ]
    assert found == expected


def test_iperf3_counts_what_the_receiver_got() -> None:
    assert iperf3.parse('{"end": {"sum_received": {"bits_per_second": 80}}}') == 10


@pytest.mark.parametrize(
    ("text", "reason"), [('{"error": "refused"}', "iperf3: refused"), ("oops", "no JSON: 'oops'")]
)
def test_iperf3_failures_are_errors(text: str, reason: str) -> None:
    with pytest.raises(peer.PeerFailed, match=reason):
        iperf3.parse(text)


@pytest.mark.parametrize(
    ("version", "package"), [(ucx.version, "ucx-utils"), (iperf3.version, "iperf3")]
)
def test_a_missing_peer_names_its_package(version, package, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(peer.PeerFailed, match=f"not installed: apt-get install {package}$"):
        version()


def script(path: Path, body: str) -> str:
    path.write_text("#!/usr/bin/env python3\nimport socket, sys\n" + body)
    path.chmod(0o755)
    return str(path)


LISTEN = "s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); c, _ = s.accept(); c.recv(1)\n"
CONNECT = "c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"


def test_a_pair_runs_when_the_port_is_open_and_leaves_nothing_behind(tmp_path: Path) -> None:
    port = peer.free_port()
    server = script(tmp_path / "server", LISTEN + "c.recv(1)")
    client = script(tmp_path / "client", CONNECT + "print('figures')")
    assert peer.run_pair([server, str(port)], [client, str(port)], port) == "figures\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_pair_is_placed(tmp_path: Path) -> None:
    port = peer.free_port()
    server = script(tmp_path / "server", LISTEN)
    where = "import os; print(sorted(os.sched_getaffinity(0)))"
    client = script(tmp_path / "client", CONNECT + where)
    before = os.sched_getaffinity(0)
    pair = Programs("x", dict, {"w": lambda n, s: {"said": peer.run_pair(
        [server, str(port)], [client, str(port)], port)}}, TOGETHER)  # fmt: skip
    core = usable_cores()[0]
    assert pair.measure(Order("w", "cpp", 8, 0), 0.0) == {"said": f"[{core}]\n"}
    assert os.sched_getaffinity(0) == before


def test_a_failing_client_is_quoted(tmp_path: Path) -> None:
    port = peer.free_port()
    server = script(tmp_path / "server", LISTEN)
    client = script(tmp_path / "client", CONNECT + "sys.exit('no such transport')")
    with pytest.raises(peer.PeerFailed, match=r"exit status 1: no such transport"):
        peer.run_pair([server, str(port)], [client, str(port)], port)


def test_a_server_that_ends_early_is_quoted(tmp_path: Path) -> None:
    server = script(tmp_path / "server", "sys.exit('no such device')")
    with pytest.raises(peer.PeerFailed, match="ended before it listened: no such device"):
        peer.run_pair([server], ["true"], peer.free_port())


def test_a_client_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "RUN_S", 0.5)
    port = peer.free_port()
    server = script(tmp_path / "server", LISTEN + "c.recv(1)")
    client = script(tmp_path / "client", CONNECT + "c.recv(1)")
    with pytest.raises(peer.PeerFailed, match="no end after"):
        peer.run_pair([server, str(port)], [client, str(port)], port)


def test_sizes_beyond_memory_are_left_out_and_named() -> None:
    small = plan.make_plan(Options(), 2 * GIB)
    assert small.left_out == (GIB,)
    assert max(small.sizes) == 256 * MIB
    assert plan.make_plan(Options(), 64 * GIB).left_out == ()
    assert plan.make_plan(Options(sizes=(8, 64)), 2 * GIB).sizes == (8, 64)
    assert small.arena_nbytes == 256 * MIB


def test_windows_hold_a_bounded_number_of_bytes() -> None:
    assert [plan.window(n) for n in (8, MIB, 16 * MIB, GIB)] == [64, 32, 2, 2]


def test_rows_are_a_list_with_a_header_first(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows = [row("latency", 8, "p50", 7e-6), row("write", MIB, "bandwidth", 2e9, unit="B/s")]
    write_json(path, header("soft", {"ucx": "1.13.1"}), rows)
    head, *rest = json.loads(path.read_text())
    assert (head["suite"], head["test"], head["ucx"]) == ("soft", "header", "1.13.1")
    assert {"cpu", "cores", "kernel", "python", "zerohop", "date"} <= head.keys()
    keys = [
        "suite",
        "test",
        "route",
        "device",
        "memory",
        "driver",
        "nbytes",
        "impl",
        "metric",
        "value",
        "unit",
        "turns",
        "spread",
        "placement",
        "steady",
    ]
    assert [list(fields) for fields in rest] == [keys, keys]
    assert rest[1]["value"] == 2e9


def judged(*rows: Row) -> dict[str, tuple[bool, str]]:
    return {v.target: (v.met, v.measured) for v in verdicts(Figures(rows))}


def test_bandwidth_targets_judge_the_worst_size_from_their_threshold() -> None:
    rows = []
    for nbytes, ours, theirs in [(4 * KIB, 1, 9), (64 * KIB, 3, 2), (MIB, 9, 10), (GIB, 4, 2)]:
        rows.append(row("write", nbytes, "bandwidth", ours))
        rows.append(row("write", nbytes, "bandwidth", theirs, impl="ucx"))
        rows.append(row("write", nbytes, "bandwidth", theirs, impl="iperf3"))
    found = judged(*rows)
    assert found["write bandwidth from 64 KiB / ucx >= 1"] == (False, "0.90 at 1 MiB, best 2.00")
    assert found["write bandwidth from 1 MiB / iperf3 >= 0.9"][0] is True


def test_latency_targets() -> None:
    rows = [
        row("latency", 8, "p50", 10e-6),
        row("latency", 8, "p50", 7e-6, impl="ucx"),
        row("latency", 8, "p50", 7e-6, impl="tcp"),
    ]
    assert [met for met, _ in judged(*rows).values()] == [True, False]


def test_targets_of_calls_and_peers() -> None:
    rows = [
        row("post_write", 8, "per_call", 1.0e-6),
        row("post_write", 8, "per_call", 2.5e-6, driver="python"),
        row("again", 8, "register", 1.9e-6, driver="python"),
        row("again", 64 * MIB, "register", 2.1e-6, driver="python"),
        row("views_torch", 64, "register", 49e-3, driver="python"),
        row("idle_peers_100", 0, "rss_per_peer", 60 * KIB, unit="B"),
    ]
    figures = Figures(rows)
    found = [*python.verdicts(figures), *registration.verdicts(figures), *verdicts(figures)]
    assert [verdict.met for verdict in found] == [False, False, True, True]


def test_what_was_not_measured_is_not_judged() -> None:
    assert judged(row("latency", 8, "p50", 1.0)) == {}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bench", "soft", "--vs", "mpu"], "'mpu' is none of ucx, iperf3, tcp"),
        (["bench", "host", "--vs", "iperf3"], "all: it is measured by zerohop bench soft"),
        (["bench", "p2p", "--vs", "all,ucx"], "zerohop bench soft and zerohop bench host"),
        (["bench", "soft", "--sizes", "8,7"], "'7' is not a size from 8 to 1G"),
        (["bench", "soft", "--sizes", "2G"], "'2G' is not a size from 8 to 1G"),
        (["bench", "hard"], "No such command 'hard'"),
        (["demo", "--ranks", "0"], "0 is not in the range"),
    ],
)
def test_the_command_line_says_what_it_does_not_know(arguments: list[str], complaint: str) -> None:
    from click.testing import CliRunner
    from zerohop.cli import main

    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


@pytest.mark.timeout(patient(120))
def test_ctrl_c_ends_a_benchmark_in_one_line() -> None:
    command = [sys.executable, "-m", "zerohop", "bench", "soft", "--verbs=soft0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            assert "zerohop bench soft" in process.stderr.readline()  # it is under way
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=patient(60))
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "zerohop bench: interrupted"


def test_the_command_line_does_not_import_what_it_may_not_need() -> None:
    code = "import sys, zerohop.cli; print({'torch', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.timeout(300)
def test_the_whole_benchmark_measures_everything_with_both_drivers(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    arguments = ["--quick", "--verbs", "soft0", "--sizes", "8,64K", "--vs", "tcp", "--json", path]
    command = [sys.executable, "-m", "zerohop", "bench", "soft", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "targets" in done.stdout
    _, *rows = json.loads(path.read_text())
    assert all(0 < row["value"] < float("inf") for row in rows)
    ours = {(r["test"], r["driver"], r["nbytes"]) for r in rows if r["impl"] == "zerohop"}
    sized = {
        (test, driver, nbytes)
        for test in plan.SIZED_TESTS
        for driver in plan.DRIVERS
        for nbytes in (8, 64 * KIB)
    }
    assert sized <= ours
    tests = {test for test, *_ in ours} - set(plan.SIZED_TESTS)
    assert tests == {*plan.BLOCK_TESTS, "idle_peers_100"}
    theirs = {(r["test"], r["nbytes"]) for r in rows if r["impl"] == "tcp"}
    assert theirs == {(test, n) for test in ("latency", "write") for n in (8, 64 * KIB)}
    assert {(r["route"], r["device"]) for r in rows if r["impl"] == "zerohop"} == {
        ("host", "soft0")
    }


def test_a_failing_peer_is_told_and_the_rest_is_measured(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/ucx_info", "print('# Version 1.2.3')")
    script(tmp_path / "bin/ucx_perftest", "sys.exit('no such transport')")
    path = tmp_path / "rows.json"
    command = [sys.executable, "-m", "zerohop", "bench", "soft", "--quick", "--sizes", "8"]
    command += ["--verbs", "soft0", "--vs", "ucx", "--json", str(path)]
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no such transport" in " ".join(done.stdout.split())
    head, *rows = json.loads(path.read_text())
    assert head["ucx"] == "1.2.3"
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    assert set(absent) == {("ucx", test) for test in plan.SIZED_TESTS}
    assert all("no such transport" in reason for reason in absent.values())
    assert {row["impl"] for row in rows} == {"zerohop"}

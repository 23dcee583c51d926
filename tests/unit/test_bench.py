"""The benchmark's parts that need no second process, its command line, and `zerohop bench soft` as a whole."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.patience import patient
from support.program import run_python
from zerohop.bench import pair, plan, soft
from zerohop.bench.plan import GIB, KIB, MIB, Options
from zerohop.bench.rows import Row, header, settled, write_json
from zerohop.cli import main


def row(value: float, impl: str = "zerohop") -> Row:
    return Row("soft", "write", "host", "soft0", "host", "cpp", 8, impl, "bandwidth", value, "B/s")


def test_a_figure_is_the_median_of_all_and_steady_if_both_passes_agree():
    values = {
        "zerohop": ([5.0, 1.0], [2.0, 4.0]),
        "tcp": ([5.0], [6.0]),
        "ucx": ([5.0], [6.1]),
        "mpi": ([7.0], []),  # what was taken once is not known to be steady
    }
    passes = [[row(v, who) for who in values for v in values[who][number]] for number in (0, 1)]
    found = [(r.impl, r.value, r.turns, round(r.spread, 3), r.steady) for r in settled(passes)]
    assert found == [
        ("zerohop", 3.0, 4, 2.0, True),
        ("tcp", 5.5, 2, 0.5, True),
        ("ucx", 5.55, 2, 0.55, False),
        ("mpi", 7.0, 1, 0.0, False),
    ]


def test_sizes_beyond_memory_are_left_out_and_named():
    small = plan.make_plan(Options(), 400 * MIB)
    assert (small.left_out, max(small.sizes)) == ((GIB,), 256 * MIB)
    assert plan.make_plan(Options(), GIB).left_out == ()
    assert plan.make_plan(Options(sizes=(8, 64)), GIB).sizes == (8, 64)
    assert plan.make_plan(Options(sizes=(MIB, GIB)), 1).sizes == (MIB,)


def test_rows_are_a_list_with_a_header_first(tmp_path):
    path = tmp_path / "rows.json"
    write_json(path, header("soft", {"ucx": "1.13.1"}), [row(7e-6), row(2e9)])
    head, *rest = json.loads(path.read_text())
    assert (head["suite"], head["test"], head["ucx"]) == ("soft", "header", "1.13.1")
    assert {"cpu", "cores", "kernel", "python", "zerohop", "date"} <= head.keys()
    keys = "suite test route device memory driver nbytes impl metric value unit turns spread placement steady"
    assert [list(fields) for fields in rest] == [keys.split()] * 2
    assert rest[1]["value"] == 2e9


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bench", "soft", "--vs", "mpu"], "'mpu' is not one of ucx, iperf3, tcp"),
        (["bench", "host", "--vs", "iperf3"], "all: it is measured by zerohop bench soft"),
        (["bench", "p2p", "--vs", "all,ucx"], "zerohop bench soft and zerohop bench host"),
        (["bench", "gda", "--vs", "rccl"], "'rccl' is not one of nvshmem, all"),
        (["bench", "soft", "--sizes", "8,7"], "'7' is not a size from 8 to 1G"),
        (["bench", "collectives", "--ranks", "1,2"], "'1,2' is not a list of numbers from 2 to 64"),
        (["bench", "p2p", "--sizes", "1T"], "'1T' is not a size from 8 to 1G"),
        (["bench", "p2p", "--plot", "x.jpeg"], "'x.jpeg' does not end in .png, .svg, .pdf"),
        (["bench", "soft", "--plot", "x.png"], "pip install 'zerohop[plot]'"),
        (["bench", "soft", "--plot", "nowhere/x.png"], "'nowhere' cannot be written to"),
        (["bench", "p2p", "--json", "nowhere/x.json"], "'nowhere' cannot be written to"),
        (["bench", "hard"], "No such command 'hard'"),
        (["demo", "--ranks", "0"], "0 is not in the range"),
    ],
)
def test_the_command_line_says_what_it_does_not_know(arguments, complaint, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # not installed
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


@pytest.mark.parametrize("suite", ["p2p", "gda"])
def test_without_a_gpu_the_command_says_so(suite, monkeypatch):
    monkeypatch.setattr("zerohop._core.gpu_count", lambda: 0)
    result = CliRunner().invoke(main, ["bench", suite])
    assert result.exit_code == 1
    assert "No GPU is visible to the driver" in result.output


@pytest.mark.timeout(patient(120))
def test_ctrl_c_ends_a_benchmark_in_one_line():
    command = [sys.executable, "-m", "zerohop", "bench", "soft", "--verbs=soft0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert "zerohop bench soft" in process.stderr.readline()  # it is under way
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=patient(60))
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "zerohop bench: interrupted"


def test_the_command_line_does_not_import_what_it_may_not_need():
    code = "import sys, zerohop.cli; print({'torch', 'rich'} & set(sys.modules))"
    assert run_python("-c", code).stdout == "set()\n"


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/usr/bin/env python3\nimport sys\n{body}")
    path.chmod(0o755)


@pytest.mark.timeout(300)
def test_the_whole_benchmark_measures_everything_and_tells_of_a_peer_that_fails(
    tmp_path, monkeypatch
):
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/ucx_info", "print('# Version 1.2.3')")
    script(tmp_path / "bin/ucx_perftest", "sys.exit('no such transport')")
    path = tmp_path / "rows.json"
    arguments = ["--quick", "--verbs=soft0", "--sizes=8,64K", "--vs=tcp,ucx", f"--json={path}"]
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    done = run_python("-m", "zerohop", "bench", "soft", *arguments, seconds=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "targets" in done.stdout
    assert "no such transport" in " ".join(done.stdout.split())
    head, *rows = json.loads(path.read_text())
    assert all(0 < row["value"] < float("inf") for row in rows)
    ours = {(r["test"], r["driver"], r["nbytes"]) for r in rows if r["impl"] == "zerohop"}
    sized = {(t, d, n) for t in soft.SIZED_TESTS for d in plan.DRIVERS for n in (8, 64 * KIB)}
    assert sized <= ours
    tests = {test for test, *_ in ours} - set(soft.SIZED_TESTS)
    assert tests == {*pair.BLOCK_TESTS, "idle_peers_100"}
    theirs = {(r["test"], r["nbytes"]) for r in rows if r["impl"] == "tcp"}
    assert theirs == {(test, n) for test in ("latency", "write") for n in (8, 64 * KIB)}
    assert {(r["route"], r["device"]) for r in rows if r["impl"] == "zerohop"} == {
        ("host", "soft0")
    }
    assert head["ucx"] == "1.2.3"
    absent = {(a["impl"], a["test"]): a["reason"] for a in head["not_available"]}
    assert set(absent) == {("ucx", test) for test in soft.SIZED_TESTS}
    assert all("no such transport" in reason for reason in absent.values())
    assert {row["impl"] for row in rows} == {"zerohop", "tcp"}

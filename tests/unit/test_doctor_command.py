"""`zerohop doctor`: what it prints, tries and exits with, and a pair of processes of which one listens."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from doctor_host import host_of
from machine import plain
from support.link import until
from support.program import run_python
from zerohop.cli import main
from zerohop.doctor import CHECKS, command, far_end, trial
from zerohop.doctor.far_end import second_process
from zerohop.doctor.trial import serve
from zerohop.endpoint import Endpoint
from zerohop.local import RankFailed

SOFT = ["--verbs", "soft0"]
STOP_S = 20.0
GONE = far_end.encode(far_end.MAGIC + b"\x00" * 40)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_doctor_examines_this_machine():
    done = run("--json")
    value = json.loads(done.output)
    assert len(value["findings"]) == 1 + len(CHECKS)
    assert {"name": "endpoint", "state": "ok"}.items() <= value["findings"][0].items()
    assert {"name": "soft0", "state": "ok"}.items() <= value["findings"][1].items()
    assert [route["route"] for route in value["routes"]] == ["host", "p2p", "gpudirect", "staged"]
    failing = [finding for finding in value["findings"] if finding["state"] == "fail"]
    assert value["works"] == (not failing)
    assert done.exit_code == (1 if failing else 0)


WITH_ENDPOINT = ([], ["--want", "host"], ["--peer", GONE], ["--listen"])
REFUSED = [("MTU", "7"), ("REGISTRATION", "foo"), ("HOST", "localhost"), ("DEVICE", "mlx5_9")]


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        *((name, value, []) for name, value in REFUSED),
        *(("HOST", "localhost", arguments) for arguments in WITH_ENDPOINT[1:]),
        ("TIMEOUT", "abc", []),  # a pair has a timeout of its own
    ],
)
def test_settings_that_every_endpoint_refuses(monkeypatch, name, value, arguments):
    monkeypatch.setenv(f"ZEROHOP_{name}", value)
    done = run(*arguments)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit), done.exception
    assert value in done.output


def test_wanted_route_is_tried():
    done = run("--want", "host", "--json", *SOFT)
    value = json.loads(done.output)
    assert done.exit_code == 0, done.output
    [outcome] = value["trials"]
    assert (outcome["route"], outcome["state"]) == ("host", "ok")
    assert outcome["evidence"].startswith("64 KiB in ")
    assert "soft0" in outcome["evidence"]


def test_wanted_route_that_lacks_something_is_not_tried(tmp_path, capsys):
    assert not command.diagnose(host_of(plain(tmp_path)), "gpudirect", "soft0", False)
    assert "not tried: cuda: no NVIDIA GPU" in " ".join(capsys.readouterr().out.split())


def test_wanted_route_on_a_device_that_is_not_there():
    done = run("--want", "host", "--json", "--verbs", "mlx5_99")
    assert done.exit_code == 1
    [outcome] = json.loads(done.output)["trials"]
    assert outcome["state"] in ("absent", "fail")  # without and with another RDMA device
    assert "mlx5_99" in outcome["evidence"]


@contextlib.contextmanager
def listening(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    pipe = subprocess.PIPE
    full = [sys.executable, "-m", "zerohop", "doctor", "--listen", *arguments]
    with subprocess.Popen(full, stdout=pipe, stderr=pipe, text=True) as process:
        line = process.stdout.readline().strip()
        try:
            assert line, process.communicate()[1]
            yield process, line
        finally:
            process.kill()


def test_pair(tmp_path):
    with listening(*SOFT) as (process, text):
        file = tmp_path / "address"
        file.write_text(f"{text}\n")
        for form in (text, far_end.decode(text).hex(), f"@{file}"):
            done = run("--peer", form, "--json", *SOFT)
            assert done.exit_code == 0, done.output
            outcomes = {o["route"]: o for o in json.loads(done.output)["trials"]}
            assert outcomes["host"]["state"] == outcomes["p2p"]["state"] == "ok"
            assert "over soft0" in outcomes["host"]["evidence"]
            assert list(outcomes) == ["host", "p2p", "gpudirect", "staged"]
            compared = {f["name"]: f for f in json.loads(done.output)["comparison"]}
            assert {f["state"] for f in compared.values()} == {"ok"}
            assert "here 4096, there 4096: 4096 used" in compared["mtus"]["evidence"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=STOP_S)
    assert process.returncode == 130
    assert "serving on soft0" in errors
    assert "--verbs soft0@INTERFACE" in errors
    assert errors.count(" connected") >= 1
    assert errors.rstrip().endswith("zerohop doctor: interrupted")


def test_pair_of_which_one_is_gone():
    with listening(*SOFT) as (process, text):
        process.kill()
        process.wait(STOP_S)
        done = run("--peer", text, *SOFT)
    assert done.exit_code == 1
    assert "cannot connect" in done.output


def test_bytes_that_differ_are_a_failure(monkeypatch):
    with Endpoint("soft0") as here, Endpoint("soft0") as there:
        trial.share(there)
        monkeypatch.setattr(trial.np, "count_nonzero", lambda _: 3)
        _, [outcome] = trial.try_pair(here, there.address, ["host"])
    assert outcome.state == "fail"
    assert "3 of 65536 bytes differ" in outcome.evidence


@pytest.mark.parametrize(
    "arguments",
    [
        ["--listen", "--json"],
        ["--listen", "--want", "host"],
        ["--listen", "--peer", GONE],
        ["--want", "teleport"],
    ],
)
def test_wrong_usage_is_exit_2(arguments):
    assert run(*arguments).exit_code == 2


def test_second_process_ends_with_its_parent():
    code = """
import multiprocessing
import os
from zerohop.doctor.far_end import second_process
from zerohop.doctor.trial import serve
with second_process(serve, "soft0"):
    [process] = multiprocessing.active_children()
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)
"""
    done = run_python("-c", code)
    assert done.returncode == -signal.SIGKILL, done.stderr
    gone = Path(f"/proc/{int(done.stdout)}")
    until(lambda: not gone.exists(), "it ends with its parent", STOP_S)


def test_second_process_that_does_not_start():
    with (
        pytest.raises(RankFailed, match=r"did not start.*mlx5_99"),
        second_process(serve, "mlx5_99"),
    ):
        pass


@pytest.mark.parametrize("by", ["variable", "option"])
def test_no_route_is_possible_where_an_endpoint_cannot_be_made(tmp_path, capsys, monkeypatch, by):
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0@nope" if by == "variable" else "soft0")
    device = None if by == "variable" else "soft0@nope"
    assert not command.diagnose(host_of(plain(tmp_path)), None, device, as_json=True)
    routes = json.loads(capsys.readouterr().out)["routes"]
    assert [route["possible"] for route in routes] == [False] * 4
    assert "soft0@nope" in routes[0]["reason"]

"""`zerohop verify`: a clean run finds nothing, and a run with faults finds them, between processes for real."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import zerohop as zh
from click.testing import CliRunner, Result
from support.patience import patient
from zerohop.cli import main
from zerohop.doctor.far_end import decode
from zerohop.verify import target
from zerohop.verify import tester as testers
from zerohop.verify.patterns import PATTERNS
from zerohop.verify.ways import PAGE, Way

SHORT = ["verify", "--minutes=0", "--size=1M", "--seed=5", "--verbs=soft0"]


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(main, [*SHORT, *arguments], catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    return result


@contextmanager
def listener() -> Iterator[str]:
    command = [sys.executable, "-m", "zerohop", "verify", "--listen", "--size=64K", "--verbs=soft0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.timeout(patient(120))
def test_a_clean_run_finds_nothing():
    result = invoke()
    assert result.exit_code == 0, result.output
    assert "no errors" in result.output
    assert "seed 5" in result.output
    for route in ("host", "p2p"):
        assert any(
            route in line and line.rstrip(" │").endswith(" 0")
            for line in result.output.splitlines()
        )


@pytest.mark.timeout(patient(120))
def test_bits_that_are_altered_are_found_and_placed(monkeypatch):
    monkeypatch.setenv("ZEROHOP_FAULTS", "seed=2,alter=0.5")
    result = invoke("--json", "--route=host", "--route=p2p")
    assert result.exit_code == 1
    value = json.loads(result.stdout)
    assert value["good"] is False
    tallies = {tally["route"]: tally for tally in value["tallies"]}
    assert tallies["p2p"]["errors"] == 0  # no device, no fault
    host = tallies["host"]
    assert host["errors"] > 0
    assert {wrong["found_by"] for wrong in host["wrong"]} >= {"checksum"}
    assert all(0 <= wrong["offset"] < 1 << 20 and wrong["nbytes"] > 0 for wrong in host["wrong"])
    assert {wrong["route"] for wrong in host["wrong"]} == {"host"}


@pytest.mark.timeout(patient(120))
def test_a_route_that_is_wanted_and_not_there_fails(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = invoke("--route=gpudirect", "--route=host", "--json")
    assert result.exit_code == 1
    value = json.loads(result.stdout)
    reason = value["absent"]["gpudirect"]
    assert reason.startswith("the other end has no such memory: ")
    assert "cuda:0" in reason
    assert [tally["errors"] for tally in value["tallies"]] == [0]


@pytest.mark.timeout(patient(120))
def test_between_a_listener_and_its_peer():
    with listener() as address:
        result = invoke("--peer", address, "--json")
        assert result.exit_code == 0, result.output
        assert {tally["route"] for tally in json.loads(result.stdout)["tallies"]} >= {"host", "p2p"}
    gone = invoke("--peer", address, "--json")
    assert gone.exit_code == 1
    assert "cannot connect" in str(json.loads(gone.stdout)["failure"])


@pytest.mark.timeout(patient(120))
def test_a_second_tester_at_one_listener_is_refused():
    """They would write the same memory, and each find what the other wrote."""
    with listener() as address, zh.Endpoint("soft0") as first:
        first.connect(decode(address), 30)
        second = invoke("--peer", address, "--json")
        assert second.exit_code == 1
        assert "max_peers" in str(json.loads(second.stdout)["failure"])


@pytest.mark.timeout(patient(120))
@pytest.mark.parametrize("form", [["--json"], []])
def test_ctrl_c_ends_it_and_shows_what_was_found(form):
    command = [sys.executable, "-m", "zerohop", *SHORT, "--minutes=9", "--route=p2p", *form]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            line = process.stderr.readline()
            assert "by p2p" in line, line + "".join(process.communicate())  # it is under way
            os.killpg(process.pid, signal.SIGINT)  # as a terminal: to all of its processes
            output, said = process.communicate(timeout=patient(60))
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    if not form:
        assert "errors found" not in output
        [last] = output.splitlines()[-1:]
        assert re.fullmatch(
            r"interrupted after [1-9]\d* operations, .* moved: no mismatch so far", last
        )
        return
    value = json.loads(output)
    assert value["failure"] == "interrupted"
    [tally] = value["tallies"]
    assert tally["operations"] > 0
    assert tally["errors"] == 0


def test_wrong_usage_is_reported():
    for arguments, words in (
        (["--listen", "--minutes=1"], "--listen can be combined only with"),
        (["--listen", "--seed=3"], "--listen can be combined only with"),
        (["--minutes=nan"], "is not a finite number"),
        (["--minutes=inf"], "is not a finite number"),
        (["--listen", "--json"], "--listen can be combined only with"),
        (["--size=3x"], "is not a size"),
        (["--verbs=nope"], "nope"),
        (["--peer=@/no/such/file"], "Invalid value"),
    ):
        result = CliRunner().invoke(main, ["verify", *arguments])
        assert result.exit_code == 2
        assert words in result.output


@pytest.mark.parametrize("text", ["junk", "", "@/no/file"])
@pytest.mark.parametrize("name", ["doctor", "verify"])
def test_what_is_no_address_is_wrong_usage(name, text):
    done = CliRunner().invoke(main, [name, "--peer", text])
    assert done.exit_code == 2
    [line] = [line for line in done.output.splitlines() if "Invalid value" in line]
    assert "the output of --listen at the other end, base64 or hex, or @FILE" in line
    assert "junk" not in line  # it might hold a secret


@pytest.mark.parametrize("route", ["host", "p2p"])
def test_all_of_the_memory_from_any_place_in_a_page(monkeypatch, route):
    nbytes = 1 << 14
    with zh.Endpoint("soft0", p2p=1) as far, zh.Endpoint("soft0", p2p=1) as near:
        target.share(far, nbytes)
        tester = testers.Tester(Way(near, near.connect(far.address), route), 1)
        for shift in (0, 1, PAGE - 1):
            monkeypatch.setattr(tester, "_place", lambda shift=shift: (0, nbytes, shift))
            tester._step("random")
        assert (tester.tally.operations, tester.tally.errors) == (3, 0)


class Bad(Way):
    """Memory of this process, of which a bit sticks and which writes one byte too many."""

    def __init__(self, nbytes: int, stuck: int, over: bool) -> None:
        self.route, self.nbytes = "host", nbytes
        self._cells, self._stuck, self._over = np.zeros(nbytes, np.uint8), stuck, over

    def put(self, content: np.ndarray, offset: int, shift: int) -> None:
        end = offset + content.size
        self._cells[offset:end] = content
        if self._over and end < self.nbytes:
            self._cells[end] ^= 0xFF
        self._cells[self._stuck] |= 0x10

    def get(self, offset: int, nbytes: int, shift: int) -> np.ndarray:
        return self._cells[offset : offset + nbytes].copy()


def test_a_stuck_bit_is_found_at_its_place():
    tester = testers.Tester(Bad(5000, stuck=1234, over=False), 1)
    steps = tester.rounds()
    names = [next(steps) for _ in range(400)]
    assert set(names) == set(PATTERNS)
    assert tester.tally.errors > 10
    assert {(wrong.offset, wrong.nbytes) for wrong in tester.tally.wrong} == {(1234, 1)}
    assert all("bits that differ: 0x10" in wrong.what for wrong in tester.tally.wrong)


def test_bytes_beside_what_is_written_are_found_at_the_end():
    tester = testers.Tester(Bad(64, stuck=0, over=True), 1)
    tester._way.put(np.full(10, 0x10, np.uint8), 0, 0)
    tester._model[:10] = 0x10
    tester.finish()
    [wrong] = tester.tally.wrong
    assert (wrong.offset, wrong.nbytes, wrong.pattern) == (10, 1, "whole memory")

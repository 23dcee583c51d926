"""What zerohop doctor and zerohop topo say about a real RDMA device."""

import json
from pathlib import Path
from typing import Any

from support.program import run_python

ADDRESS = "10.77.0.1"  # of guest a on its first wire


def run(*arguments: str, seconds: float = 30) -> Any:
    done = run_python("-m", "zerohop", *arguments, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def findings() -> dict[str, dict[str, str]]:
    report = json.loads(run("doctor", "--json"))
    assert report["works"]
    assert {verdict["route"]: verdict["possible"] for verdict in report["routes"]}["host"]
    return {finding["name"]: finding for finding in report["findings"]}


def test_doctor_sees_the_device() -> None:
    found = findings()
    for name in ("libibverbs", "providers", "uverbs", "ports", "gids", "mtu"):
        assert found[name]["state"] == "ok", found[name]
    assert "rxe0/1 ACTIVE" in found["ports"]["evidence"]
    assert f"rxe0/1: {ADDRESS} at index 1" in found["gids"]["evidence"]
    assert "rxe0/1 4096" in found["mtu"]["evidence"]


def test_doctor_tries_the_route_with_a_second_process() -> None:
    report = json.loads(run("doctor", "--json", "--want", "host", "--verbs", "rxe0"))
    [trial] = report["trials"]
    assert (trial["route"], trial["state"]) == ("host", "ok")
    assert "rxe0" in trial["evidence"]


def test_verify_adapter_passes_and_says_that_it_is_software(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    page = run("verify", "--adapter", "rxe0", "--quick", "--json", str(file), seconds=60)
    report = json.loads(file.read_text())
    outcomes = {step["name"]: step["outcome"] for step in report["steps"]}
    assert "fail" not in outcomes.values(), page
    for name in ("states", "write and read", "srq exhausted", "64 queue pairs", "notifications"):
        assert outcomes[name] == "pass"
    assert report["facts"]["what it is"].startswith("NOT HARDWARE: Soft-RoCE (rxe)")


def test_topo_shows_the_device() -> None:
    assert "rxe0" in run("topo")
    machine = json.loads(run("topo", "--json"))
    [device] = [device for device in machine["rdma"] if device["name"] == "rxe0"]
    [port] = device["ports"]
    assert port["state"] == "ACTIVE"
    assert port["link_layer"] == "Ethernet"
    assert any(gid["type"] == "RoCE v2" for gid in port["gids"])
    assert Path("/sys/class/infiniband/rxe0/parent").read_text().strip() == device["parent"]

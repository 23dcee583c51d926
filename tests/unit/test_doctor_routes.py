"""Which routes the doctor holds possible on a machine, and what it names when one is not."""

import json

import pytest
from click.testing import CliRunner
from doctor_host import (
    CLOSED,
    EOPNOTSUPP,
    OPEN,
    cuda_of,
    host_of,
    offer_device_files,
    verbs_of,
)
from machine import Machine, dgx, plain, software, virtual, without_adapter, workstation
from zerohop.cli import main
from zerohop.doctor import Host, Verdict, examine, judge


def ready(machine: Machine) -> Machine:
    """Everything that a machine of this shape can have."""
    offer_device_files(machine)
    machine.write("proc/driver/nvidia/version", OPEN)
    machine.write("proc/sys/kernel/osrelease", "6.8.0")
    machine.write("proc/self/maps", "7f00-7f01 r-xp 00 fe:01 1 /usr/lib/libsodium.so.23")
    return machine


def verdicts(host: Host) -> dict[str, Verdict]:
    return {verdict.route: verdict for verdict in judge(examine(host))}


def possible(host: Host) -> list[str]:
    return [route for route, verdict in verdicts(host).items() if verdict.possible]


@pytest.mark.parametrize(
    ("build", "routes"),
    [
        (dgx, ["host", "p2p", "gpudirect", "staged"]),
        (virtual, ["host", "p2p", "gpudirect", "staged"]),
        (workstation, ["host", "p2p", "gpudirect", "staged"]),
        (without_adapter, ["host", "p2p", "staged"]),
        (software, ["host", "p2p"]),
        (plain, ["host", "p2p"]),
    ],
)
def test_routes_of_sound_machines(tmp_path, build, routes):
    host = host_of(ready(build(tmp_path)))
    assert possible(host) == routes
    assert [f for f in examine(host) if f.state == "fail"] == []


@pytest.mark.parametrize(
    ("device", "routes", "host"),
    [
        ("soft0", ["host", "p2p", "staged"], "over soft0"),
        ("mlx5_0", ["host", "p2p", "gpudirect", "staged"], "over mlx5_0"),
    ],
)
def test_a_chosen_device_is_the_only_one_that_counts(tmp_path, device, routes, host):
    known = {v.route: v for v in judge(examine(host_of(ready(dgx(tmp_path)))), device)}
    assert [route for route, verdict in known.items() if verdict.possible] == routes
    assert known["host"].reason == host
    assert known["staged"].reason == f"through pinned host memory, {host}"
    if device == "soft0":
        assert known["gpudirect"].reason == "soft0 is software and copies GPU memory: use staged"


def test_reasons_say_what_lacks(tmp_path):
    known = verdicts(host_of(ready(plain(tmp_path))))
    assert known["host"].reason == "over soft0"
    assert known["staged"].reason == "cuda: no NVIDIA GPU"
    assert known["gpudirect"].reason == (
        "cuda: no NVIDIA GPU; providers, uverbs, transport, ports: no RDMA device"
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda machine: (machine.root / "dev/infiniband/uverbs0").unlink(),
        lambda machine: machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN"),
    ],
)
def test_adapter_that_cannot_be_used(tmp_path, spoil):
    machine = ready(virtual(tmp_path))
    spoil(machine)
    host = host_of(machine)
    assert possible(host) == ["host", "p2p", "staged"]
    assert verdicts(host)["host"].reason == "over soft0"


def test_iwarp_serves_the_route_of_host_memory(tmp_path):
    machine = plain(tmp_path)
    machine.rdma("irdma0", "0000:00 05.0", node_type="4: RNIC", link="Ethernet", driver="ice")
    machine.write("dev/infiniband/rdma_cm", "")
    host = host_of(ready(machine))
    assert verdicts(host)["host"].reason == "over an RDMA device"


@pytest.mark.parametrize("lack", ["gpu", "adapter", "kernel"])
def test_registration_by_dma_buf_or_peermem(tmp_path, lack):
    machine = ready(virtual(tmp_path))
    cuda, verbs = cuda_of(machine), verbs_of(machine)
    if lack == "gpu":
        cuda = cuda_of(machine, dma_buf=0)
        machine.write("proc/driver/nvidia/version", CLOSED)
    elif lack == "adapter":
        verbs = verbs_of(machine, EOPNOTSUPP)
    else:
        machine.write("proc/sys/kernel/osrelease", "5.4.0")
    without = verdicts(host_of(machine, cuda=cuda, verbs=verbs))["gpudirect"]
    assert not without.possible
    assert "peermem: " in without.reason
    machine.write("sys/module/nvidia_peermem/version", "580")
    loaded = verdicts(host_of(machine, cuda=cuda, verbs=verbs))["gpudirect"]
    assert loaded.possible
    assert loaded.reason == "GPU memory registered through nvidia-peermem"


def test_p2p_that_the_environment_turns_off_is_reported(monkeypatch):
    monkeypatch.setenv("ZEROHOP_P2P", "0")
    done = CliRunner().invoke(main, ["doctor", "--json", "--want", "p2p", "--verbs", "soft0"])
    value = json.loads(done.output)
    [p2p] = [route for route in value["routes"] if route["route"] == "p2p"]
    assert not p2p["possible"]
    assert "unset it, or make Endpoints with p2p=1" in p2p["reason"]
    assert value["trials"][0]["state"] == "absent"
    assert done.exit_code == 1

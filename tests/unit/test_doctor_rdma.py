"""The doctor on RDMA devices: every state of every check."""

from collections.abc import Callable
from pathlib import Path

import pytest
from doctor_host import host_of, offer_device_files, offer_uverbs, verbs_of
from machine import ROCE_GIDS, Machine, dgx, plain, software, workstation
from zerohop.doctor import rdma
from zerohop.doctor.checks import Check
from zerohop.doctor.facts import Verbs, VerbsDevice

NO_LIBRARY = Verbs(reason="libibverbs.so.1 cannot be loaded")
CHECKS: list[Check] = [rdma.providers, rdma.uverbs, rdma.ports, rdma.gids, rdma.mtu]


@pytest.fixture
def roce(tmp_path: Path) -> Machine:
    """One RoCE adapter with two ports, the first of them down."""
    return workstation(tmp_path)


@pytest.mark.parametrize("check", CHECKS)
def test_no_rdma_device(tmp_path: Path, check: Check) -> None:
    assert check(host_of(plain(tmp_path))).state == "absent"


@pytest.mark.parametrize(
    ("build", "verbs", "state"),
    [
        (plain, Verbs(), "ok"),
        (plain, NO_LIBRARY, "absent"),
        (workstation, Verbs(), "ok"),
        (workstation, NO_LIBRARY, "fail"),
    ],
)
def test_libibverbs(
    tmp_path: Path, build: Callable[[Path], Machine], verbs: Verbs, state: str
) -> None:
    finding = rdma.libibverbs(host_of(build(tmp_path), verbs=verbs))
    assert finding.state == state
    assert ("apt-get install libibverbs1" in finding.fix) == (state == "fail")


def test_providers(tmp_path: Path) -> None:
    assert rdma.providers(host_of(dgx(tmp_path))).state == "ok"


@pytest.mark.parametrize("announced", [False, True])
def test_missing_provider(roce: Machine, announced: bool) -> None:
    if announced:
        roce.write("etc/libibverbs.d/mlx5.driver", "driver mlx5")
    finding = rdma.providers(host_of(roce, verbs=Verbs()))
    assert finding.state == "fail"
    why = "is announced, yet fails" if announced else "is missing"
    assert finding.evidence == f"mlx5_0: provider mlx5 {why}"


@pytest.mark.parametrize(
    ("driver", "node_type", "provider"),
    [
        ("mlx5_core", "1: CA", "mlx5"),
        ("ice", "4: RNIC", "irdma"),
        ("efa", "7: unspecified", "efa"),
        (None, "1: CA", "rxe"),
        (None, "4: RNIC", "siw"),
    ],
)
def test_provider_names(tmp_path: Path, driver: str | None, node_type: str, provider: str) -> None:
    machine = Machine(tmp_path)
    way = None if driver is None else "0000:00 04.0"
    machine.rdma("dev0", way, node_type=node_type, driver=driver or "")
    [device] = host_of(machine).topology.rdma
    assert rdma.provider_of(device) == provider


def test_uverbs(roce: Machine) -> None:
    offer_device_files(roce)
    finding = rdma.uverbs(host_of(roce))
    assert (finding.state, finding.evidence) == ("ok", "/dev/infiniband/uverbs0")
    finding = rdma.uverbs(host_of(roce, access=False))
    assert (finding.state, finding.evidence) == ("fail", "/dev/infiniband/uverbs0 not permitted")
    broken = Verbs(devices=(VerbsDevice("mlx5_0", reason="No such device"),))
    finding = rdma.uverbs(host_of(roce, verbs=broken))
    assert (finding.state, finding.evidence) == ("fail", "mlx5_0: No such device")


def test_uverbs_without_its_module(roce: Machine) -> None:
    finding = rdma.uverbs(host_of(roce))
    assert (finding.state, finding.fix) == ("fail", "modprobe ib_uverbs")


@pytest.mark.parametrize(
    ("path", "environ", "fix"),
    [
        ("", {}, "start udev"),
        (".dockerenv", {}, "--device=/dev/infiniband"),
        ("run/.containerenv", {}, "--device=/dev/infiniband"),
        ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "--device=/dev/infiniband"),
        ("", {"container": "podman"}, "--device=/dev/infiniband"),
    ],
)
def test_uverbs_hidden_from_a_container(
    roce: Machine, path: str, environ: dict[str, str], fix: str
) -> None:
    offer_uverbs(roce, ["mlx5_0"])
    (roce.root / "dev/infiniband/uverbs0").unlink()
    if path:
        roce.write(path, "")
    finding = rdma.uverbs(host_of(roce, environ=environ))
    assert (finding.state, finding.evidence) == ("fail", "/dev/infiniband/uverbs0 missing")
    assert fix in finding.fix


def test_ports(roce: Machine) -> None:
    finding = rdma.ports(host_of(roce))
    assert (finding.state, finding.evidence) == ("warn", "mlx5_0/1 DOWN, mlx5_0/2 ACTIVE")
    assert finding.fix == "ip link set eth0 up, and see to its cable"
    roce.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
    assert rdma.ports(host_of(roce)).state == "ok"


@pytest.mark.parametrize(
    ("state", "fix"),
    [
        ("1: DOWN", "see to the cable of mlx5_0 port 1"),
        ("2: INIT", "start a subnet manager in the fabric (opensm)"),
    ],
)
def test_no_active_port(tmp_path: Path, state: str, fix: str) -> None:
    machine = Machine(tmp_path)
    machine.rdma("mlx5_0", "0000:00 04.0", states=[state])
    finding = rdma.ports(host_of(machine))
    assert (finding.state, finding.fix) == ("fail", fix)


def test_ports_of_software_devices_are_those_of_their_parent(tmp_path: Path) -> None:
    machine = software(tmp_path)
    machine.write("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN")
    assert rdma.ports(host_of(machine)).fix == "ip link set dmy0 up, and see to its cable"


@pytest.mark.parametrize(
    ("count", "state", "words"),
    [
        (3, "ok", "roce0/1: 10.0.0.5 at index 3"),
        (2, "warn", "roce0/1: link-local only"),
        (1, "fail", "roce0/1: no RoCE v2 GID"),
    ],
)
def test_gids(tmp_path: Path, count: int, state: str, words: str) -> None:
    machine = Machine(tmp_path)
    machine.rdma("roce0", "0000:00 04.0", link="Ethernet", gids=ROCE_GIDS[:count])
    finding = rdma.gids(host_of(machine))
    assert finding.state == state
    assert finding.evidence.startswith(words)
    assert ("ip addr add" in finding.fix) == (state != "ok")


@pytest.mark.parametrize(("link", "node_type"), [("InfiniBand", "1: CA"), ("Ethernet", "4: RNIC")])
def test_gids_matter_on_roce_alone(tmp_path: Path, link: str, node_type: str) -> None:
    machine = Machine(tmp_path)
    machine.rdma("dev0", "0000:00 04.0", link=link, node_type=node_type)
    assert rdma.gids(host_of(machine)).state == "absent"


@pytest.mark.parametrize(("active", "state"), [(4096, "ok"), (1024, "warn")])
def test_mtu_of_ethernet(roce: Machine, active: int, state: str) -> None:
    finding = rdma.mtu(host_of(roce, verbs=verbs_of(roce, mtu=active)))
    assert (finding.state, finding.evidence) == (state, f"mlx5_0/2 {active} (eth0 9000)")
    assert finding.fix == ("" if state == "ok" else "ip link set eth0 mtu 4200 (switches too)")


def test_mtu_of_infiniband(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.rdma("mlx5_0", "0000:00 04.0")
    finding = rdma.mtu(host_of(machine, verbs=verbs_of(machine, mtu=2048)))
    assert (finding.state, finding.evidence) == ("warn", "mlx5_0/1 2048")
    assert "subnet manager" in finding.fix


def test_mtu_unknown_without_libibverbs(roce: Machine) -> None:
    assert rdma.mtu(host_of(roce, verbs=NO_LIBRARY)).state == "absent"


def test_transport_of_iwarp_is_refused_for_good(roce: Machine, tmp_path: Path) -> None:
    assert rdma.transport(host_of(roce)).evidence == "mlx5_0: InfiniBand or RoCE"
    roce.rdma("irdma0", None, node_type="4: RNIC", link="Ethernet")
    finding = rdma.transport(host_of(roce))
    assert finding.state == "ok"
    assert "irdma0: iWARP, never used; use soft0@<its network interface>" in finding.evidence
    assert "irdma0" not in rdma.ports(host_of(roce)).evidence
    alone = plain(tmp_path / "alone")
    alone.rdma("siw0", None, node_type="4: RNIC", link="Ethernet")
    assert rdma.transport(host_of(alone)).state == rdma.ports(host_of(alone)).state == "absent"

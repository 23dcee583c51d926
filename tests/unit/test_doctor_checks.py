"""Every check of the doctor in each of its states, on machines written as trees of files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_host import (
    CLOSED,
    EBADF,
    EOPNOTSUPP,
    OPEN,
    ROOT_CAPABILITIES,
    cuda_of,
    host_of,
    offer_device_files,
    offer_uverbs,
    verbs_of,
)
from machine import ROCE_GIDS, Machine, dgx, plain, software, virtual, without_adapter, workstation
from zerohop.doctor import driver, gpudirect, limits, pcie, rdma, sharing
from zerohop.doctor import software as own
from zerohop.doctor.checks import Check
from zerohop.doctor.facts import Cuda, Verbs, VerbsDevice

GONE = None  # of a file: it is taken away
NO_CUDA = Cuda(reason="no libcuda")
NO_VERBS = Verbs(reason="libibverbs.so.1 cannot be loaded")
UVERBS, MAPS = "dev/infiniband/uverbs0", "proc/self/maps"
STATUS, SCOPE = "proc/self/status", "proc/sys/kernel/yama/ptrace_scope"
PORT = "sys/class/infiniband/mlx5_0/ports/1/state"
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def offered(path: Path) -> Machine:
    """With the device files of the GPUs' driver and of RDMA devices."""
    machine = virtual(path)
    offer_device_files(machine)
    return machine


def shown(path: Path) -> Machine:
    """With the file of its RDMA device."""
    machine = workstation(path)
    offer_uverbs(machine, ["mlx5_0"])
    return machine


def with_rdma(**options: Any) -> Callable[[Path], Machine]:
    """One adapter, and nothing else."""

    def build(path: Path) -> Machine:
        machine = Machine(path)
        machine.rdma("mlx5_0", "0000:00 04.0", **options)
        return machine

    return build


def with_rnic(path: Path) -> Machine:
    """An iWARP adapter with its file."""
    machine = plain(path)
    machine.rdma("irdma0", "0000:00 05.0", node_type="4: RNIC", link="Ethernet", driver="ice")
    offer_uverbs(machine, ["irdma0"])
    return machine


# Check, machine, files written there, what the host answers (of `cuda` and `verbs` what differs), state,
# and what the evidence or the fix says.
CASES: list[tuple[Check, Callable[[Path], Machine], dict[str, Any], dict[str, Any], str, str]] = [
    (driver.driver, plain, {}, {}, "absent", ""),
    (driver.driver, virtual, {"proc/driver/nvidia/version": OPEN}, {}, "ok", "580.159.04, open kernel"),
    (driver.driver, virtual, {"proc/driver/nvidia/version": CLOSED}, {}, "warn", "proprietary"),
    (driver.driver, virtual, {"proc/driver/nvidia/version": CLOSED.replace("535.104", "470.57")}, {},
     "fail", "470.57.05"),
    (driver.driver, virtual, {"proc/driver/nvidia/version": "NVRM: new"}, {}, "warn", "unknown version"),
    (driver.driver, virtual, {}, {}, "fail", "without a loaded NVIDIA driver"),
    (driver.gpu_files, plain, {}, {}, "absent", ""),
    (driver.gpu_files, offered, {}, {}, "ok", "/dev/nvidia-uvm, /dev/nvidia0, /dev/nvidia1"),
    (driver.gpu_files, offered, {}, {"access": False}, "fail", "not permitted"),
    (driver.gpu_files, offered, {"dev/nvidia-uvm": GONE}, {}, "fail", "nvidia-modprobe -u"),
    (driver.gpu_files, offered, {"dev/nvidia-uvm": GONE, ".dockerenv": ""}, {}, "fail", "--gpus all"),
    (driver.cuda, plain, {}, {}, "absent", ""),
    (driver.cuda, virtual, {}, {}, "ok", "CUDA 13.0: H200, H200"),
    (driver.cuda, virtual, {}, {"cuda": Cuda(reason="cuInit", code=100)}, "fail", "CUDA_VISIBLE_DEVICES"),
    (driver.cuda, virtual, {}, {"cuda": Cuda(reason="cuInit", code=802)}, "fail", "fabricmanager"),
    (driver.cuda, virtual, {}, {"cuda": Cuda(reason="cuInit", code=803)}, "fail", "reboot"),
    (driver.cuda, virtual, {}, {"cuda": Cuda(reason="cuInit", code=999)}, "fail", "nvidia-modprobe"),
    (driver.cuda, virtual, {}, {"cuda": Cuda(reason="none")}, "fail", "install the user part"),
    (driver.torch_cuda, plain, {}, {"torch_cuda": "13.0"}, "absent", ""),
    (driver.torch_cuda, virtual, {}, {"torch_cuda": "12.8"}, "ok", ""),
    (driver.torch_cuda, virtual, {}, {"torch_cuda": "14.1"}, "warn", ""),
    (driver.torch_cuda, virtual, {}, {"torch_cuda": None}, "absent", ""),
    (gpudirect.dma_buf, virtual, {}, {}, "ok", ""),
    (gpudirect.dma_buf, virtual, {}, {"cuda": {"dma_buf": 0}}, "warn", "not exported by H200"),
    (gpudirect.dma_buf, virtual, {}, {"cuda": NO_CUDA}, "absent", "no libcuda"),
    (gpudirect.peermem, virtual, {gpudirect.PEERMEM[0]: "580.1"}, {}, "ok", "is loaded (580.1)"),
    (gpudirect.peermem, virtual, {gpudirect.PEERMEM[1]: "580.1"}, {}, "ok", "is loaded (580.1)"),
    (gpudirect.peermem, virtual, {}, {}, "absent", ""),
    (gpudirect.peermem, virtual, {}, {"cuda": {"dma_buf": 0}}, "warn", "modprobe nvidia-peermem"),
    (gpudirect.peermem, without_adapter, {}, {"cuda": {"dma_buf": 0}}, "absent", ""),
    (gpudirect.write_order, virtual, {}, {}, "ok", "in order (100), no flush needed"),
    (gpudirect.write_order, virtual, {}, {"cuda": {"write_order": 0}}, "ok", "flushed by"),
    (gpudirect.write_order, virtual, {}, {"cuda": {"write_order": 0, "flush_options": 0}}, "warn",
     "registration='staged'"),
    (gpudirect.write_order, virtual, {}, {"cuda": {"gpudirect": 0}}, "warn", "no GPUDirect RDMA"),
    (gpudirect.write_order, virtual, {}, {"cuda": NO_CUDA}, "absent", "no libcuda"),
    (gpudirect.bar1, virtual, {}, {}, "absent", ""),
    (gpudirect.data_direct, virtual, {}, {"verbs": Verbs(devices=(VerbsDevice("mlx5_0", data_direct="/d"),))},
     "ok", "mlx5_0: /d"),
    (gpudirect.data_direct, virtual, {}, {"verbs": Verbs(devices=(VerbsDevice("mlx5_0", data_direct=""),))},
     "absent", "has no Data Direct"),
    (gpudirect.relaxed_ordering, without_adapter, {}, {}, "absent", ""),
    (gpudirect.rdma_dma_buf, virtual, {}, {"verbs": {"errno": EBADF}}, "ok", "registers dma-bufs"),
    (gpudirect.rdma_dma_buf, virtual, {}, {"verbs": {"errno": EOPNOTSUPP}}, "warn", "refused by the driver"),
    (gpudirect.rdma_dma_buf, virtual, {}, {"verbs": {"errno": None}}, "warn", "libibverbs too old"),
    (gpudirect.rdma_dma_buf, software, {}, {}, "absent", "no NVIDIA GPU"),
    (gpudirect.rdma_dma_buf, virtual, {},
     {"verbs": Verbs(devices=(VerbsDevice("mlx5_0", reason="Permission denied"),))}, "absent", ""),
    (pcie.distance, dgx, {}, {}, "ok", "mlx5_0 PIX, mlx5_1 PIX (NUMA 0, CPUs 0-55,112-167)"),
    (pcie.distance, without_adapter, {}, {}, "absent", ""),
    (pcie.iommu, virtual, {}, {}, "ok", ""),
    (pcie.iommu, software, {}, {}, "absent", ""),
    (pcie.acs, virtual, {}, {}, "absent", ""),
    (limits.kernel, plain, {"proc/sys/kernel/osrelease": "5.12.0"}, {}, "ok", "5.12.0"),
    (limits.kernel, plain, {"proc/sys/kernel/osrelease": "5.10.0-32-amd64"}, {}, "warn", "5.10.0"),
    (limits.kernel, plain, {"proc/sys/kernel/osrelease": "strange"}, {}, "absent", "strange"),
    (limits.memlock, software, {STATUS: ""}, {}, "ok", ""),
    (limits.memlock, software, {STATUS: ROOT_CAPABILITIES}, {"memlock": 64 << 10}, "ok", ""),
    (limits.memlock, software, {STATUS: ""}, {"memlock": 8 << 20}, "warn", "enough for 7 Peers"),
    (limits.memlock, software, {STATUS: ""}, {"memlock": 64 << 10}, "fail", "ulimit -l unlimited"),
    (limits.memlock, plain, {STATUS: ""}, {"memlock": 64 << 10}, "ok", ""),
    (limits.max_map_count, plain, {MAPS: "7f r\n" * 300, "proc/sys/vm/max_map_count": 65530}, {}, "ok", ""),
    (limits.max_map_count, plain, {MAPS: "7f r\n" * 60_000, "proc/sys/vm/max_map_count": 65530}, {},
     "warn", ""),
    (limits.max_map_count, plain, {MAPS: "7f r\n"}, {}, "absent", ""),
    (limits.numa_balancing, dgx, {"proc/sys/kernel/numa_balancing": 0}, {}, "ok", ""),
    (limits.numa_balancing, dgx, {"proc/sys/kernel/numa_balancing": 1}, {}, "warn", ""),
    (limits.numa_balancing, plain, {}, {}, "absent", "1 NUMA node"),
    (limits.numa_balancing, Machine, {}, {}, "absent", "NUMA nodes not known"),
    (limits.clocks, plain, {}, {}, "ok", "no clock synchronisation between hosts is needed"),
    (limits.clocks, plain, {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}, {},
     "warn", "hpet"),
    (own.soft0, plain, {}, {"loopback": (True, "64 KiB")}, "ok", "64 KiB"),
    (own.soft0, plain, {}, {"loopback": (False, "refused")}, "fail", "refused"),
    (own.libsodium, plain, {MAPS: "7f r-xp 0 fe:01 1 /usr/lib/libsodium.so.23"}, {}, "ok", "libsodium.so"),
    (own.libsodium, plain, {MAPS: "7f r-xp 0 fe:01 1 /x/zerohop.libs/libsodium-1a.so.23"}, {}, "ok", ""),
    (own.libsodium, plain, {MAPS: "7f r-xp 0 fe:01 1 /usr/lib/libc.so.6"}, {}, "fail", "not loaded"),
    (own.gpu_kernels, plain, {}, {}, "ok", ""),
    (own.gpu_kernels, plain, {}, {"kernels": False}, "absent", ""),
    (own.gpu_kernels, virtual, {}, {"kernels": False}, "warn", "nvidia-cuda-nvcc"),
    (own.nvtx, plain, {}, {"nvtx": True}, "ok", ""),
    (own.nvtx, plain, {}, {"nvtx": False}, "absent", ""),
    (own.nvml, plain, {}, {}, "absent", ""),
    (rdma.libibverbs, plain, {}, {"verbs": NO_VERBS}, "absent", ""),
    (rdma.libibverbs, workstation, {}, {}, "ok", ""),
    (rdma.libibverbs, workstation, {}, {"verbs": NO_VERBS}, "fail", "apt-get install libibverbs1"),
    (rdma.providers, plain, {}, {}, "absent", ""),
    (rdma.providers, dgx, {}, {}, "ok", ""),
    (rdma.providers, workstation, {}, {"verbs": Verbs()}, "fail", "provider mlx5 is missing"),
    (rdma.providers, workstation, {"etc/libibverbs.d/mlx5.driver": "driver mlx5"}, {"verbs": Verbs()},
     "fail", "is listed but fails"),
    (rdma.uverbs, plain, {}, {}, "absent", ""),
    (rdma.uverbs, shown, {}, {}, "ok", "/dev/infiniband/uverbs0"),
    (rdma.uverbs, shown, {}, {"access": False}, "fail", "not permitted"),
    (rdma.uverbs, shown, {}, {"verbs": Verbs(devices=(VerbsDevice("mlx5_0", reason="No such device"),))}, "fail",
     "No such device"),
    (rdma.uverbs, workstation, {}, {}, "fail", "modprobe ib_uverbs"),
    (rdma.uverbs, shown, {UVERBS: GONE}, {}, "fail", "start udev"),
    (rdma.uverbs, shown, {UVERBS: GONE, "run/.containerenv": ""}, {}, "fail", "--device=/dev/infiniband"),
    (rdma.uverbs, shown, {UVERBS: GONE}, {"environ": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}}, "fail",
     "--device=/dev/infiniband"),
    (rdma.ports, plain, {}, {}, "absent", ""),
    (rdma.ports, workstation, {}, {}, "warn", "ip link set eth0 up"),
    (rdma.ports, workstation, {PORT: "4: ACTIVE"}, {}, "ok", ""),
    (rdma.ports, with_rdma(states=["1: DOWN"]), {}, {}, "fail", "check the cable of mlx5_0 port 1"),
    (rdma.ports, with_rdma(states=["2: INIT"]), {}, {}, "fail", "opensm"),
    (rdma.ports, software, {"sys/class/infiniband/rxe0/ports/1/state": "1: DOWN"}, {}, "fail",
     "ip link set dmy0 up"),
    (rdma.gids, with_rdma(link="Ethernet", gids=ROCE_GIDS), {}, {}, "ok", "10.0.0.5 at index 3"),
    (rdma.gids, with_rdma(link="Ethernet", gids=ROCE_GIDS[:2]), {}, {}, "warn", "ip addr add"),
    (rdma.gids, with_rdma(link="Ethernet", gids=ROCE_GIDS[:1]), {}, {}, "fail", "no RoCE v2 GID"),
    (rdma.gids, with_rdma(), {}, {}, "absent", ""),
    (rdma.mtu, workstation, {}, {}, "ok", "mlx5_0/2 4096 (eth0 9000)"),
    (rdma.mtu, workstation, {}, {"verbs": {"mtu": 1024}}, "warn", "ip link set eth0 mtu 4200"),
    (rdma.mtu, with_rdma(), {}, {"verbs": {"mtu": 2048}}, "warn", "subnet manager"),
    (rdma.mtu, workstation, {}, {"verbs": NO_VERBS}, "absent", ""),
    (rdma.transport, workstation, {}, {}, "ok", "mlx5_0: InfiniBand or RoCE"),
    (rdma.transport, with_rdma(node_type="4: RNIC", link="Ethernet"), {}, {}, "ok", "iWARP, connected by rdma_cm"),
    (rdma.uverbs, with_rnic, {}, {}, "fail", "/dev/infiniband/rdma_cm missing"),
    (rdma.uverbs, with_rnic, {"dev/infiniband/rdma_cm": ""}, {}, "ok", "/dev/infiniband/rdma_cm"),
    (sharing.p2p, workstation, {}, {}, "absent", ""),
    (sharing.p2p, virtual, {}, {}, "ok", "every pair of 2 GPUs, over PHB"),
    (sharing.ipc, virtual, {}, {}, "ok", "IPC handles and file descriptors"),
    (sharing.ipc, virtual, {}, {"cuda": {"posix_fd_handles": 0}}, "ok", "no file descriptors"),
    (sharing.ipc, virtual, {}, {"cuda": {"compute_mode": 3}}, "fail", "nvidia-smi -c DEFAULT"),
    (sharing.ipc, virtual, {}, {"cuda": NO_CUDA}, "absent", ""),
    (sharing.ptrace, plain, {STATUS: "", SCOPE: 0}, {}, "ok", "ptrace_scope is 0"),
    (sharing.ptrace, plain, {STATUS: "", SCOPE: 1}, {}, "warn", "sysctl kernel.yama.ptrace_scope=0"),
    (sharing.ptrace, plain, {STATUS: ROOT_CAPABILITIES, SCOPE: 2}, {}, "ok", ""),
    (sharing.ptrace, plain, {STATUS: ROOT_CAPABILITIES, SCOPE: 3}, {}, "warn", ""),
    (sharing.ptrace, plain, {}, {"vm": "process_vm_readv: refused"}, "warn", "--cap-add=SYS_PTRACE"),
    (sharing.expandable_segments, plain, {}, {}, "absent", ""),
    (sharing.expandable_segments, virtual, {}, {"cuda": NO_CUDA, "environ": SEGMENTS}, "absent", ""),
    (sharing.expandable_segments, virtual, {}, {"environ": SEGMENTS}, "ok", ""),
    (sharing.expandable_segments, virtual, {}, {"environ": SEGMENTS, "cuda": {"dma_buf": 0}}, "warn", ""),
]  # fmt: skip


def number_and_name(value: object) -> str | None:
    return getattr(value, "__name__", "") if callable(value) else ""


@pytest.mark.parametrize(
    ("check", "build", "files", "answers", "state", "words"), CASES, ids=number_and_name
)
def test_a_check(tmp_path, check, build, files, answers, state, words):
    machine = build(tmp_path)
    for path, text in files.items():
        if text is GONE:
            (machine.root / path).unlink()
        else:
            machine.write(path, text)
    made: dict[str, Callable[..., Any]] = {"cuda": cuda_of, "verbs": verbs_of}
    given = {
        name: made[name](machine, **value) if name in made and isinstance(value, dict) else value
        for name, value in answers.items()
    }
    finding = check(host_of(machine, **given))
    assert finding.state == state, finding
    assert words in f"{finding.evidence} {finding.fix}"
    assert state == "absent" or bool(finding.fix) == (state != "ok")


@pytest.fixture
def machine(tmp_path):
    return virtual(tmp_path)


def test_old_cuda(machine):
    old = Cuda(version=11080, devices=cuda_of(machine).devices)
    finding = driver.cuda(host_of(machine, cuda=old))
    assert (finding.state, finding.evidence) == (
        "fail",
        "the driver supports CUDA 11.8, 12.0 is needed",
    )


def test_nvlinks_that_are_not_known(machine):
    host = host_of(machine)
    host.topology = replace(host.topology, notes=("NVLinks are unknown: x",))
    assert own.nvml(host).state == "warn"


@pytest.mark.parametrize(
    ("driver_name", "node_type", "provider"),
    [
        ("mlx5_core", "1: CA", "mlx5"),
        ("ice", "4: RNIC", "irdma"),
        (None, "1: CA", "rxe"),
        (None, "4: RNIC", "siw"),
    ],
)
def test_provider_names(tmp_path, driver_name, node_type, provider):
    machine = Machine(tmp_path)
    way = None if driver_name is None else "0000:00 04.0"
    machine.rdma("dev0", way, node_type=node_type, driver=driver_name or "")
    [device] = host_of(machine).topology.rdma
    assert rdma.provider_of(device) == provider


def test_iwarp_beside_roce(tmp_path):
    """Its ports count; it has no GID of RoCE, and TCP chooses its own segments."""
    machine = workstation(tmp_path)
    machine.rdma("irdma0", None, node_type="4: RNIC", link="Ethernet")
    host = host_of(machine)
    assert "irdma0: iWARP, connected by rdma_cm" in rdma.transport(host).evidence
    assert "irdma0" in rdma.ports(host).evidence
    assert "irdma0" not in rdma.gids(host).evidence
    assert "irdma0" not in rdma.mtu(host).evidence


@pytest.mark.parametrize(("peers", "state"), [({(0, 1)}, "warn"), (set(), "fail")])
def test_gpus_that_do_not_reach_each_other(machine, peers, state):
    cuda = replace(cuda_of(machine), peers=frozenset(peers))
    assert sharing.p2p(host_of(machine, cuda=cuda)).state == state
    if peers:
        assert sharing.p2p_matrix(host_of(machine, cuda=cuda)) == [["X", "PHB"], ["no", "X"]]
        hidden = host_of(machine, cuda=cuda, environ={"CUDA_VISIBLE_DEVICES": "0"})
        assert sharing.p2p_matrix(hidden) == [
            ["X", "yes"],
            ["no", "X"],
        ]  # which is which is unknown


def test_ipc_that_was_refused(machine):
    refusal = "cuIpcOpenMemHandle_v2: CUDA_ERROR_INVALID_CONTEXT (201)"
    finding = sharing.ipc(host_of(machine, cuda=replace(cuda_of(machine), ipc=("", refusal))))
    assert (finding.state, finding.evidence) == ("fail", f"cuda:1: {refusal}")


def test_distance_across_sockets_is_worth_a_warning(tmp_path):
    machine = without_adapter(tmp_path)
    machine.rdma("mlx5_0", "0000:17 02.0 19:00.0", 0)
    finding = pcie.distance(host_of(machine))
    assert finding.state == "warn"
    assert "GPU1: mlx5_0 SYS (NUMA 1, CPUs 16-31)" in finding.evidence

"""The doctor on GPUDirect RDMA: every state of every check, IOMMU and ACS included."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_host import EBADF, EOPNOTSUPP, NBYTES, cuda_of, host_of, verbs_of
from machine import Machine, dgx, plain, software, virtual, without_adapter
from zerohop.doctor import gpudirect, pcie
from zerohop.doctor.config_space import device_control
from zerohop.doctor.facts import Cuda, Verbs, VerbsDevice

SWITCH_PORTS = ("0000:19:00.0", "0000:19:10.0")  # above GPU0 and mlx5_0 of dgx


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return virtual(tmp_path)


@pytest.mark.parametrize(("supported", "state"), [(1, "ok"), (0, "warn")])
def test_dma_buf(machine: Machine, supported: int, state: str) -> None:
    finding = gpudirect.dma_buf(host_of(machine, cuda=cuda_of(machine, dma_buf=supported)))
    assert finding.state == state


def test_dma_buf_names_the_gpu_without(machine: Machine) -> None:
    cuda = cuda_of(machine)
    old = replace(
        cuda.devices[1], name="T4", attributes={**cuda.devices[1].attributes, "dma_buf": 0}
    )
    finding = gpudirect.dma_buf(
        host_of(machine, cuda=replace(cuda, devices=(cuda.devices[0], old)))
    )
    assert (finding.state, finding.evidence) == ("warn", "not exported by T4")


@pytest.mark.parametrize("check", [gpudirect.dma_buf, gpudirect.write_order])
def test_without_cuda(machine: Machine, check: object) -> None:
    finding = check(host_of(machine, cuda=Cuda(reason="no libcuda")))  # type: ignore[operator]
    assert (finding.state, finding.evidence) == ("absent", "no libcuda")


@pytest.mark.parametrize("path", gpudirect.PEERMEM)
def test_peermem_loaded(machine: Machine, path: str) -> None:
    machine.write(path, "580.1")
    finding = gpudirect.peermem(host_of(machine))
    assert finding.state == "ok"
    assert finding.evidence.endswith("is loaded (580.1)")


@pytest.mark.parametrize(("dma_buf", "state"), [(1, "absent"), (0, "warn")])
def test_peermem_is_missed_only_without_dma_buf(machine: Machine, dma_buf: int, state: str) -> None:
    finding = gpudirect.peermem(host_of(machine, cuda=cuda_of(machine, dma_buf=dma_buf)))
    assert finding.state == state
    assert finding.fix == ("modprobe nvidia-peermem" if state == "warn" else "")


def test_peermem_without_rdma(tmp_path: Path) -> None:
    machine = without_adapter(tmp_path)
    finding = gpudirect.peermem(host_of(machine, cuda=cuda_of(machine, dma_buf=0)))
    assert finding.state == "absent"


@pytest.mark.parametrize(
    ("attributes", "state", "words"),
    [
        ({}, "ok", "in order (100), no flush needed"),
        ({"write_order": 0}, "ok", "flushed by cuFlushGPUDirectRDMAWrites"),
        ({"write_order": 0, "flush_options": 0}, "warn", "no order and no flush call"),
        ({"gpudirect": 0}, "warn", "no GPUDirect RDMA"),
    ],
)
def test_write_order(machine: Machine, attributes: dict[str, int], state: str, words: str) -> None:
    finding = gpudirect.write_order(host_of(machine, cuda=cuda_of(machine, **attributes)))
    assert finding.state == state
    assert finding.evidence == f"H200: {words}"
    assert ("registration='staged'" in finding.fix) == (state == "warn")


def resource_lines(*windows: tuple[int, int]) -> str:
    """As the kernel writes them: thirteen lines of begin, end and flags."""
    lines = [
        f"{begin:#018x} {begin + size - 1 if size else 0:#018x} 0x0" for begin, size in windows
    ]
    return "\n".join([*lines, *["0x0 0x0 0x0"] * (13 - len(lines))])


@pytest.mark.parametrize("wide_registers", [False, True])
@pytest.mark.parametrize(("window", "state"), [(256 << 30, "ok"), (256 << 20, "warn")])
def test_bar1(machine: Machine, window: int, state: str, wide_registers: bool) -> None:
    """The window is the second one, wherever a 64-bit BAR0 pushes it (an H200's is at line 2)."""
    gap = [(0, 0)] if wide_registers else []
    text = resource_lines(
        (0x1000000, 16 << 20), *gap, (1 << 44, window), (0, 0), (1 << 40, 32 << 20)
    )
    for address in ("0000:00:06.0", "0000:00:07.0"):
        machine.write(f"sys/bus/pci/devices/{address}/resource", text)
    finding = gpudirect.bar1(host_of(machine))
    assert finding.state == state
    if state == "warn":
        assert "GPU0: 256 MiB for 141 GiB of memory" in finding.evidence
    else:
        assert finding.evidence == "GPU0: 256 GiB; GPU1: 256 GiB"
    assert NBYTES == 141 << 30


@pytest.mark.parametrize(("used", "state"), [(10 << 30, "ok"), (250 << 30, "warn")])
def test_use_of_bar1(machine: Machine, used: int, state: str) -> None:
    """Without /sys, as in some containers, NVML tells the size too."""
    cuda = cuda_of(machine)
    devices = tuple(replace(d, bar1_nbytes=256 << 30, bar1_used=used) for d in cuda.devices)
    finding = gpudirect.bar1(host_of(machine, cuda=replace(cuda, devices=devices)))
    assert finding.state == state
    assert f"GPU0: 256 GiB, {used >> 30} GiB in use" in finding.evidence
    assert ("nvidia-smi -q -d MEMORY" in finding.fix) == (state == "warn")


def express(control: int) -> bytes:
    """A header with a list of two capabilities, of which the second is PCI Express."""
    space = bytearray(256)
    space[0x06], space[0x34] = 0x10, 0x40
    space[0x40:0x42] = bytes((0x01, 0x60))
    space[0x60:0x62] = bytes((0x10, 0x00))
    struct.pack_into("<H", space, 0x68, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("control", "errno", "state", "words"),
    [
        (0x10, 0, "ok", "taken by the adapter, allowed on PCIe"),
        (0x00, 0, "warn", "taken by the adapter, switched off on PCIe"),
        (
            0x10,
            95,
            "ok",
            "refused by the adapter (Operation not supported), so zerohop goes without",
        ),
        (0x10, None, "warn", "libibverbs is too old to ask for it, allowed on PCIe"),
        (None, 0, "ok", "taken by the adapter, PCIe control readable by root only"),
    ],
)
def test_relaxed_ordering(
    machine: Machine, control: int | None, errno: int | None, state: str, words: str
) -> None:
    if control is not None:
        set_config(machine, "0000:00:08.0", express(control))
    verbs = Verbs(devices=(VerbsDevice("mlx5_0", relaxed_errno=errno),))
    finding = gpudirect.relaxed_ordering(host_of(machine, verbs=verbs))
    assert finding.state == state
    assert words in finding.evidence
    assert ("setpci -s 0000:00:08.0" in finding.fix) == (control == 0)


def test_control_of_what_is_no_pcie_device_is_unknown(machine: Machine) -> None:
    for content in (bytes(64), bytes(256), express(0x10)[:64]):
        set_config(machine, "0000:00:08.0", content)
        assert device_control(machine.root, "0000:00:08.0") is None
    endless = bytearray(express(0x10))
    endless[0x60:0x62] = bytes((0x05, 0x40))
    set_config(machine, "0000:00:08.0", bytes(endless))
    assert device_control(machine.root, "0000:00:08.0") is None


@pytest.mark.parametrize("build", [plain, software, without_adapter])
def test_relaxed_ordering_is_for_gpus_and_adapters(tmp_path: Path, build: object) -> None:
    finding = gpudirect.relaxed_ordering(host_of(build(tmp_path)))  # type: ignore[operator]
    assert finding.state == "absent"


@pytest.mark.parametrize(
    ("path", "state", "words"),
    [
        ("/devices/pci0000:00", "ok", "mlx5_0: /devices/pci0000:00"),
        ("", "absent", "mlx5_0 has no Data Direct"),
        (None, "absent", "no mlx5 adapter"),
    ],
)
def test_data_direct(machine: Machine, path: str | None, state: str, words: str) -> None:
    verbs = Verbs(devices=(VerbsDevice("mlx5_0", data_direct=path),))
    finding = gpudirect.data_direct(host_of(machine, verbs=verbs))
    assert finding.state == state
    assert words in finding.evidence


# --- distance ---


def test_distance_of_a_dgx_names_the_near_adapters_and_cpus(tmp_path: Path) -> None:
    finding = pcie.distance(host_of(dgx(tmp_path)))
    assert finding.state == "ok"
    assert "mlx5_0 PIX, mlx5_1 PIX (NUMA 0, CPUs 0-55,112-167)" in finding.evidence
    assert "NUMA 1, CPUs 56-111,168-223" in finding.evidence


def test_distance_across_sockets_is_worth_a_warning(tmp_path: Path) -> None:
    machine = without_adapter(tmp_path)
    assert pcie.distance(host_of(machine)).state == "absent"
    machine.rdma("mlx5_0", "0000:17 02.0 19:00.0", 0)
    finding = pcie.distance(host_of(machine))
    assert finding.state == "warn"
    assert "GPU0: mlx5_0 PHB (NUMA 0, CPUs 0-15)" in finding.evidence
    assert "GPU1: mlx5_0 SYS (NUMA 1, CPUs 16-31)" in finding.evidence


def test_distance_where_no_node_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.gpu("0000:00 06.0")
    machine.rdma("mlx5_0", "0000:00 08.0")
    finding = pcie.distance(host_of(machine))
    assert (finding.state, finding.evidence) == ("ok", "GPU0: mlx5_0 PHB (NUMA not told)")


def test_bar1_unreadable(machine: Machine) -> None:
    assert gpudirect.bar1(host_of(machine)).state == "absent"


@pytest.mark.parametrize(
    ("errno", "state", "words"),
    [
        (EBADF, "ok", "registers dma-bufs"),
        (EOPNOTSUPP, "warn", "refused by the driver"),
        (None, "warn", "libibverbs too old"),
    ],
)
def test_rdma_dma_buf(machine: Machine, errno: int | None, state: str, words: str) -> None:
    finding = gpudirect.rdma_dma_buf(host_of(machine, verbs=verbs_of(machine, errno)))
    assert (finding.state, finding.evidence) == (state, f"mlx5_0: {words}")


def test_rdma_dma_buf_is_for_gpus(tmp_path: Path) -> None:
    machine = software(tmp_path)
    finding = gpudirect.rdma_dma_buf(host_of(machine, verbs=verbs_of(machine, EOPNOTSUPP)))
    assert (finding.state, finding.evidence) == ("absent", "no NVIDIA GPU")


def test_rdma_dma_buf_without_a_device_that_opens(machine: Machine) -> None:
    verbs = Verbs(devices=(VerbsDevice("mlx5_0", reason="Permission denied"),))
    assert gpudirect.rdma_dma_buf(host_of(machine, verbs=verbs)).state == "absent"


# --- IOMMU ---


def put_in_group(machine: Machine, number: int, address: str, kind: str | None) -> None:
    group = f"sys/kernel/iommu_groups/{number}"
    (machine.root / group).mkdir(parents=True)
    if kind is not None:
        machine.write(f"{group}/type", kind)
    machine.link(f"sys/bus/pci/devices/{address}/iommu_group", group)


@pytest.mark.parametrize(
    ("kind", "state"), [("identity", "ok"), ("DMA", "warn"), ("DMA-FQ", "warn"), (None, "warn")]
)
def test_iommu(machine: Machine, kind: str | None, state: str) -> None:
    for number, slot in enumerate((6, 7, 8)):
        put_in_group(machine, number, f"0000:00:0{slot}.0", kind)
    finding = pcie.iommu(host_of(machine))
    assert finding.state == state
    assert "0000:00:06.0, 0000:00:07.0, 0000:00:08.0" in finding.evidence


def test_iommu_of_one_device_counts(machine: Machine) -> None:
    put_in_group(machine, 1, "0000:00:08.0", "DMA")
    finding = pcie.iommu(host_of(machine))
    assert finding.state == "warn"
    assert "DMA: 0000:00:08.0" in finding.evidence


def test_iommu_off(machine: Machine) -> None:
    assert pcie.iommu(host_of(machine)).state == "ok"


@pytest.mark.parametrize("build", [plain, software])
def test_iommu_does_not_matter(tmp_path: Path, build: object) -> None:
    assert pcie.iommu(host_of(build(tmp_path))).state == "absent"  # type: ignore[operator]


# --- ACS ---


def config_space(*capabilities: tuple[int, int], control: int = 0, endless: bool = False) -> bytes:
    """4096 bytes with extended capabilities (offset, id) in a chain; `control` goes into ACS."""
    space = bytearray(4096)
    for index, (offset, number) in enumerate(capabilities):
        later = capabilities[index + 1][0] if index + 1 < len(capabilities) else 0
        if endless and not later:
            later = capabilities[0][0]
        struct.pack_into("<I", space, offset, number | 1 << 16 | later << 20)
        if number == 0x000D:
            struct.pack_into("<H", space, offset + 6, control)
    return bytes(space)


def set_config(machine: Machine, address: str, content: bytes) -> None:
    (machine.root / f"sys/bus/pci/devices/{address}/config").write_bytes(content)


def switches(machine: Machine) -> list[str]:
    return [f"0000:{bus}9:{slot}.0" for bus in "139b" for slot in ("00", "01", "10", "11")]


@pytest.mark.parametrize(
    ("control", "state"),
    [(0x00, "ok"), (0x01, "ok"), (0x04, "warn"), (0x08, "warn"), (0x1D, "warn")],
)
def test_acs(tmp_path: Path, control: int, state: str) -> None:
    machine = dgx(tmp_path)
    for address in switches(machine):
        set_config(machine, address, config_space((0x100, 0x0001), (0x148, 0x0002)))
    for address in SWITCH_PORTS:
        set_config(machine, address, config_space((0x100, 1), (0x220, 0xD), control=control))
    finding = pcie.acs(host_of(machine))
    assert finding.state == state
    if state == "warn":
        assert finding.evidence == f"redirects at {', '.join(SWITCH_PORTS)}"


@pytest.mark.parametrize("content", [None, bytes(64), bytes(256)])
def test_acs_is_hidden_from_users(tmp_path: Path, content: bytes | None) -> None:
    machine = dgx(tmp_path)
    if content is not None:
        for address in switches(machine):
            set_config(machine, address, content)
    finding = pcie.acs(host_of(machine))
    assert finding.state == "absent"
    assert finding.fix == "run the doctor as root"


def test_acs_survives_a_broken_chain(tmp_path: Path) -> None:
    machine = dgx(tmp_path)
    for address in switches(machine):
        set_config(machine, address, config_space((0x100, 1), (0x200, 2), endless=True))
    assert pcie.acs(host_of(machine)).state == "ok"


def test_acs_without_a_shared_switch(machine: Machine) -> None:
    assert pcie.acs(host_of(machine)).state == "absent"

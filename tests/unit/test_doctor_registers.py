"""The doctor on GPUDirect RDMA: windows onto GPUs, and registers of PCIe."""

import struct
from dataclasses import replace

import pytest
from doctor_host import cuda_of, host_of
from machine import Machine, dgx, virtual
from zerohop.doctor import gpudirect, pcie
from zerohop.doctor.facts import Verbs, VerbsDevice
from zerohop.doctor.pcie import device_control


@pytest.fixture
def machine(tmp_path):
    return virtual(tmp_path)


@pytest.mark.parametrize("wide_registers", [False, True])
@pytest.mark.parametrize(("window", "state"), [(256 << 30, "ok"), (256 << 20, "warn")])
def test_bar1(machine, window, state, wide_registers):
    """The window is the second one, wherever a 64-bit BAR0 pushes it (an H200's is at line 2)."""
    windows = [(1 << 24, 16 << 20), *[(0, 0)] * wide_registers, (1 << 44, window), (0, 0)]
    lines = [
        f"{begin:#018x} {begin + size - 1 if size else 0:#018x} 0x0" for begin, size in windows
    ]
    for address in ("0000:00:06.0", "0000:00:07.0"):  # as the kernel has it: thirteen lines
        text = "\n".join([*lines, *["0x0 0x0 0x0"] * (13 - len(lines))])
        machine.write(f"sys/bus/pci/devices/{address}/resource", text)
    finding = gpudirect.bar1(host_of(machine))
    assert finding.state == state
    assert ("256 MiB for 141 GiB" if state == "warn" else "GPU1: 256 GiB") in finding.evidence


@pytest.mark.parametrize(("used", "state"), [(10 << 30, "ok"), (250 << 30, "warn")])
def test_use_of_bar1(machine, used, state):
    """Without /sys, as in some containers, NVML tells the size too."""
    cuda = cuda_of(machine)
    devices = tuple(replace(d, bar1_nbytes=256 << 30, bar1_used=used) for d in cuda.devices)
    finding = gpudirect.bar1(host_of(machine, cuda=replace(cuda, devices=devices)))
    assert finding.state == state
    assert f"GPU0: 256 GiB, {used >> 30} GiB in use" in finding.evidence


def set_config(machine: Machine, address: str, content: bytes) -> None:
    (machine.root / f"sys/bus/pci/devices/{address}/config").write_bytes(content)


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
        (0x10, 0, "ok", "accepted by the adapter, allowed on PCIe"),
        (0x00, 0, "warn", "accepted by the adapter, switched off on PCIe"),
        (0x10, 95, "ok", "refused by the adapter"),
        (0x10, None, "warn", "libibverbs is too old to ask for it, allowed on PCIe"),
        (None, 0, "ok", "accepted by the adapter, PCIe control readable by root only"),
    ],
)
def test_relaxed_ordering(machine, control, errno, state, words):
    if control is not None:
        set_config(machine, "0000:00:08.0", express(control))
    verbs = Verbs(devices=(VerbsDevice("mlx5_0", relaxed_errno=errno),))
    finding = gpudirect.relaxed_ordering(host_of(machine, verbs=verbs))
    assert finding.state == state
    assert words in finding.evidence
    assert ("setpci -s 0000:00:08.0" in finding.fix) == (control == 0)


def test_control_of_what_is_no_pcie_device_is_unknown(machine):
    endless = bytearray(express(0x10))
    endless[0x60:0x62] = bytes((0x05, 0x40))
    for content in (bytes(64), bytes(256), express(0x10)[:64], bytes(endless)):
        set_config(machine, "0000:00:08.0", content)
        assert device_control(machine.root, "0000:00:08.0") is None


@pytest.mark.parametrize(
    ("kind", "state"), [("identity", "ok"), ("DMA-FQ", "warn"), (None, "warn")]
)
def test_iommu(machine, kind, state):
    group = "sys/kernel/iommu_groups/1"
    (machine.root / group).mkdir(parents=True)
    if kind is not None:
        machine.write(f"{group}/type", kind)
    machine.link("sys/bus/pci/devices/0000:00:08.0/iommu_group", group)
    finding = pcie.iommu(host_of(machine))
    assert finding.state == state
    assert "0000:00:08.0" in finding.evidence


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


SWITCH_PORTS = ("0000:19:00.0", "0000:19:10.0")  # above GPU0 and mlx5_0 of dgx
ACS = {
    "none": (config_space((0x100, 0x0001), (0x148, 0x0002)), "ok"),
    "harmless": (config_space((0x100, 1), (0x220, 0xD), control=0x01), "ok"),
    "redirects": (config_space((0x100, 1), (0x220, 0xD), control=0x1D), "warn"),
    "hidden from users": (bytes(64), "absent"),
    "a broken chain": (config_space((0x100, 1), (0x200, 2), endless=True), "ok"),
}


@pytest.mark.parametrize("name", ACS)
def test_acs(tmp_path, name):
    content, state = ACS[name]
    machine = dgx(tmp_path)
    ports = [f"0000:{bus}9:{slot}.0" for bus in "139b" for slot in ("00", "01", "10", "11")]
    for address in ports:
        set_config(machine, address, ACS["none"][0] if state == "warn" else content)
    for address in SWITCH_PORTS:
        set_config(machine, address, content)
    finding = pcie.acs(host_of(machine))
    assert finding.state == state
    if state == "warn":
        assert finding.evidence == f"redirects at {', '.join(SWITCH_PORTS)}"
    assert (finding.fix == "run the doctor as root") == (state == "absent")

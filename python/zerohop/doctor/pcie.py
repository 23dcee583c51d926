"""Checks of the path between two PCIe devices that communicate without the CPU: distance, IOMMU, ACS.

Some of it is in the part of the configuration space that only root can read.
"""

from __future__ import annotations

import struct
from itertools import chain
from pathlib import Path

from zerohop.doctor.finding import Finding
from zerohop.doctor.host import Host
from zerohop.topology import Distance, Gpu, PciDevice, RdmaDevice

STATUS, HAS_LIST = 0x06, 0x10  # register, and its bit that says there are capabilities
FIRST = 0x34  # holds the offset of the first one
PCI_EXPRESS = 0x10  # capability (PCI Express Base Specification 6.0, 7.5.3)
DEVICE_CONTROL = 8  # in it
EXTENDED = 0x100  # where extended capabilities begin
USUAL = 0x40  # bytes of the header, which every user may read


def read(root: Path, address: str) -> bytes:
    """The readable part of a device's configuration space; b"" if nothing."""
    try:
        return (root / f"sys/bus/pci/devices/{address}/config").read_bytes()
    except OSError:
        return b""


def device_control(root: Path, address: str) -> int | None:
    """The PCIe device control register; None if it may not be read, or is not a PCIe device.

    A capability starts with one byte for its id and one for the offset of the next.
    """
    config = read(root, address)
    if len(config) <= USUAL or not config[STATUS] & HAS_LIST:
        return None
    offset, seen = config[FIRST] & 0xFC, set[int]()
    while USUAL <= offset <= min(len(config), EXTENDED) - DEVICE_CONTROL - 2 and offset not in seen:
        seen.add(offset)
        if config[offset] == PCI_EXPRESS:
            return int(struct.unpack_from("<H", config, offset + DEVICE_CONTROL)[0])
        offset = config[offset + 1] & 0xFC
    return None


def extended(root: Path, address: str, capability: int, nbytes: int) -> bytes | None:
    """The first bytes of an extended capability, b"" if it has none; None if it may not be read.

    It starts with a word of id (16 bits), version (4) and offset of the next (12).
    """
    config = read(root, address)
    if len(config) <= EXTENDED:
        return None
    offset, seen = EXTENDED, set[int]()
    while EXTENDED <= offset <= len(config) - nbytes and offset not in seen:
        seen.add(offset)
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == capability:
            return config[offset : offset + nbytes]
        offset = header >> 20
    return b""


ACS = 0x000D  # extended capability (PCI Express Base Specification 6.0, 7.7.11)
ACS_NBYTES = 8  # of it, up to its control word
REDIRECT = 0x4 | 0x8  # ACS control: P2P request redirect, P2P completion redirect


def _pci(device: Gpu | RdmaDevice) -> PciDevice | None:
    return device.pci


def distance(host: Host) -> Finding:
    """The distance of each GPU from its nearest RDMA devices, and the near CPUs (zerohop topo)."""
    topology = host.topology
    if not topology.gpus or not any(rdma.active_ports for rdma in topology.rdma):
        return Finding("distance", "absent", "no pair of GPU and active RDMA device")
    cpus = {node.number: node.cpus for node in topology.numa}
    lines: dict[str, list[str]] = {}
    far = False
    for gpu in topology.gpus:
        near = topology.nearest(gpu.name)
        node = topology.node_of(gpu)
        where = f"NUMA {node}, CPUs {cpus[node] or 'none'}" if node in cpus else "NUMA unknown"
        names = [f"{rdma.name} {topology.label(gpu.name, rdma.name)}" for rdma in near]
        far |= any(topology.distance(gpu.name, rdma.name) == Distance.SYS for rdma in near)
        lines.setdefault(f"{', '.join(names) or 'none usable'} ({where})", []).append(gpu.name)
    text = "; ".join(f"{', '.join(gpus)}: {what}" for what, gpus in lines.items())
    if far:
        fix = "put the adapter on the GPU's own socket, preferably on the same PCIe switch"
        return Finding("distance", "warn", text, f"{fix}; or use a GPU near the adapter")
    return Finding("distance", "ok", text)


def iommu(host: Host) -> Finding:
    """Whether the IOMMU translates traffic between GPUs and RDMA devices.

    Anything but identity ("pass-through") sends the traffic through the root complex, or breaks it (NCCL
    user guide, GPU troubleshooting). The mode is the type of a device's group (kernel:
    ABI/testing/sysfs-kernel-iommu_groups).
    """
    devices = [pci for pci in map(_pci, host.topology.devices) if pci is not None]
    if len(devices) < 2 or not host.topology.gpus:
        return Finding("iommu", "absent", "no two devices that communicate directly")
    kinds: dict[str, list[str]] = {}
    for pci in devices:
        group = host.tree.target(f"sys/bus/pci/devices/{pci.address}/iommu_group")
        kind = "off" if group is None else host.tree.text(f"{group}/type") or "of unknown mode"
        kinds.setdefault(kind, []).append(pci.address)
    evidence = "; ".join(f"{kind}: {', '.join(where)}" for kind, where in kinds.items())
    if set(kinds) <= {"off", "identity"}:
        return Finding("iommu", "ok", evidence)
    return Finding("iommu", "warn", f"translating ({evidence})", "boot with iommu=pt")


def acs(host: Host) -> Finding:
    """Whether PCIe switches redirect traffic between a GPU and an RDMA device to the CPU.

    Source: NCCL user guide, GPU troubleshooting, "PCI Access Control Services".
    """
    bridges = sorted(set(chain.from_iterable(_between(host))))
    if not bridges:
        return Finding("acs", "absent", "no GPU and RDMA device share a PCIe switch")
    controls = {address: _acs_control(host, address) for address in bridges}
    redirecting = [a for a, control in controls.items() if control and control & REDIRECT]
    if redirecting:
        fix = "disable ACS in the firmware, or on these bridges: setpci -s ADDRESS ECAP_ACS+6.w=0"
        return Finding("acs", "warn", f"redirects at {', '.join(redirecting)}", fix)
    if None in controls.values():
        return Finding("acs", "absent", "unreadable without root", "run the doctor as root")
    return Finding("acs", "ok", f"no redirection at {', '.join(bridges)}")


def _between(host: Host) -> list[list[str]]:
    """For each GPU and RDMA device on one tree of switches, the bridges between them."""
    found = []
    for gpu in host.topology.gpus:
        for rdma in host.topology.rdma:
            if host.topology.distance(gpu.name, rdma.name) in (Distance.PIX, Distance.PXB):
                assert rdma.pci is not None
                found.append([*set(gpu.pci.bridges) ^ set(rdma.pci.bridges)])
    return found


def _acs_control(host: Host, address: str) -> int | None:
    """The ACS control word of a bridge, 0 for one without ACS; None if it may not be read."""
    capability = extended(host.root, address, ACS, ACS_NBYTES)
    if not capability:
        return None if capability is None else 0
    return int(struct.unpack_from("<H", capability, 6)[0])

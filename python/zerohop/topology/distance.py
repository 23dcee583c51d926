"""The distance of two devices, in the terms of `nvidia-smi topo -m`."""

from __future__ import annotations

import enum

from zerohop.topology.pci import PciDevice


class Distance(enum.IntEnum):
    """Near to far; compare with < and >."""

    X = 0  # the device itself
    NV = 1  # NVLink
    PIX = 2
    PXB = 3
    PHB = 4
    NODE = 5
    SYS = 6


LEGEND = {
    "X": "the device itself",
    "NV#": "# NVLinks, directly or through NVSwitches",
    "PIX": "one PCIe switch or bridge",
    "PXB": "several PCIe switches, no host bridge",
    "PHB": "a PCIe host bridge, that is, the CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes, or unknown",
}


def pci_distance(a: PciDevice | None, b: PciDevice | None, numa_nodes: int) -> Distance:
    """Distance over PCIe. A device that is not on a PCI bus (rxe0) is SYS from everything.

    numa_nodes: number of nodes of the machine; if there is one, devices without a node belong to it.
    """
    if a is None or b is None:
        return Distance.SYS
    if a.address == b.address:
        return Distance.X
    shared = 0
    while shared < min(len(a.path), len(b.path)) and a.path[shared] == b.path[shared]:
        shared += 1
    if shared == 0:
        same_node = a.numa == b.numa and (a.numa >= 0 or numa_nodes <= 1)
        return Distance.NODE if same_node else Distance.SYS
    if shared == 1:  # only the host bridge
        return Distance.PHB
    # Below the shared upstream port a single switch has a downstream port and the device.
    below = max(len(a.path), len(b.path)) - shared
    return Distance.PIX if below <= 2 else Distance.PXB

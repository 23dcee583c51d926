"""Network devices, from /sys/class/net: soft0 can run on these."""

from __future__ import annotations

from dataclasses import dataclass

from zerohop.topology.pci import PciDevice, read_pci_device
from zerohop.topology.tree import Tree


@dataclass(frozen=True)
class NetDevice:
    name: str  # "eth0"
    state: str  # "up", "down", "unknown" (loopback and dummy devices)
    mtu: int
    mbps: int  # 0 if unknown
    pci: PciDevice | None

    @property
    def numa(self) -> int:
        return -1 if self.pci is None else self.pci.numa


def read_net_devices(tree: Tree) -> list[NetDevice]:
    return [_device(tree, name) for name in tree.names("class/net")]


def _device(tree: Tree, name: str) -> NetDevice:
    where = f"class/net/{name}"
    return NetDevice(
        name=name,
        state=tree.text(f"{where}/operstate") or "unknown",
        mtu=tree.integer(f"{where}/mtu") or 0,
        mbps=max(0, tree.integer(f"{where}/speed") or 0),  # -1 without a link
        pci=read_pci_device(tree, f"{where}/device"),
    )

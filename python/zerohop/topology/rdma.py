"""RDMA devices, their ports and GIDs, from /sys/class/infiniband (kernel: ABI/stable/sysfs-class-infiniband)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from zerohop.topology.pci import PciDevice, read_pci_device
from zerohop.topology.tree import Tree

UNUSED = ":".join(["0000"] * 8)  # an empty entry of a GID table


@dataclass(frozen=True)
class Gid:
    index: int
    value: ipaddress.IPv6Address
    type: str | None  # "RoCE v2", "IB/RoCE v1"
    netdev: str | None

    @property
    def routable(self) -> bool:
        """Whether it is routed beyond the local network: an IPv4-mapped or a global address."""
        return not self.value.is_link_local


@dataclass(frozen=True)
class Port:
    number: int
    state: str  # "ACTIVE", "DOWN", "INIT", "ARMED"
    link_layer: str  # "InfiniBand" or "Ethernet"
    gbps: float  # line rate in Gbit/s, 0 if unknown
    lid: int
    gids: tuple[Gid, ...]

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


@dataclass(frozen=True)
class RdmaDevice:
    name: str  # "mlx5_0"
    node_type: str  # "CA"; "RNIC" is iWARP
    pci: PciDevice | None  # None for a software device such as rxe0
    parent: str | None  # the network device that a software device runs on
    ports: tuple[Port, ...]

    @property
    def numa(self) -> int:
        return -1 if self.pci is None else self.pci.numa

    @property
    def active_ports(self) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.active)

    @property
    def gbps(self) -> float:
        """Rate of its fastest active port."""
        return max((port.gbps for port in self.active_ports), default=0.0)


def read_rdma_devices(tree: Tree) -> list[RdmaDevice]:
    return [_device(tree, name) for name in tree.names("class/infiniband")]


def _device(tree: Tree, name: str) -> RdmaDevice:
    where = f"class/infiniband/{name}"
    return RdmaDevice(
        name=name,
        node_type=_word(tree.text(f"{where}/node_type")),
        pci=read_pci_device(tree, f"{where}/device"),
        parent=tree.text(f"{where}/parent"),
        ports=tuple(
            _port(tree, f"{where}/ports", number) for number in tree.names(f"{where}/ports")
        ),
    )


def _port(tree: Tree, where: str, number: str) -> Port:
    here = f"{where}/{number}"
    rate = (tree.text(f"{here}/rate") or "0").split()[0]  # "400 Gb/sec (4X NDR)"
    found = (_gid(tree, here, index) for index in tree.names(f"{here}/gids"))
    return Port(
        number=int(number),
        state=_word(tree.text(f"{here}/state")),
        link_layer=tree.text(f"{here}/link_layer") or "unknown",
        gbps=float(rate) if rate.replace(".", "", 1).isdecimal() else 0.0,
        lid=tree.integer(f"{here}/lid") or 0,
        gids=tuple(gid for gid in found if gid is not None),
    )


def _gid(tree: Tree, port: str, index: str) -> Gid | None:
    text = tree.text(f"{port}/gids/{index}")
    if text in (None, UNUSED):
        return None
    try:
        value = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if int(value) & (1 << 64) - 1 == 0:  # unused: nothing, or a bare subnet prefix
        return None
    return Gid(
        index=int(index),
        value=value,
        type=tree.text(f"{port}/gid_attrs/types/{index}"),
        netdev=tree.text(f"{port}/gid_attrs/ndevs/{index}"),
    )


def _word(text: str | None) -> str:
    """The word in "4: ACTIVE"."""
    return (text or "unknown").rpartition(":")[2].strip()

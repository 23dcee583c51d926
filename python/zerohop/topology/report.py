"""The output of `zerohop topo`: the matrix, the devices, the legend."""

from __future__ import annotations

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from zerohop.topology.distance import LEGEND
from zerohop.topology.rdma import Port, RdmaDevice
from zerohop.topology.topology import Topology

STYLES = {
    "X": "dim",
    "PIX": "green",
    "PXB": "green",
    "PHB": "yellow",
    "NODE": "yellow",
    "SYS": "red",
}

SHOWN = 3  # addresses shown per port; in containers there are dozens


def print_topology(topology: Topology, console: Console) -> None:
    parts: list[RenderableType] = []
    if topology.devices:
        parts.append(_matrix(topology))
    if topology.rdma:
        parts.append(_ports(topology))
    else:
        parts.append("No RDMA device: use soft0, over one of the network devices below.")
    parts.append(_networks(topology))
    parts.append(_nodes(topology) if topology.numa else topology.numa_text)
    if topology.devices:
        parts.append(_legend(topology))
    parts += [escape(f"note: {note}") for note in topology.notes]
    # Let the terminal wrap a table that is too wide, instead of squeezing it.
    unbounded = console.options.update(width=10_000)
    widest = max(console.measure(part, options=unbounded).maximum for part in parts)
    console.width = max(console.width, widest)
    for part in parts:
        console.print(part)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _matrix(topology: Topology) -> Table:
    table = _table("", *(device.name for device in topology.devices), "NUMA", "nearest RDMA")
    for device, labels in zip(topology.devices, topology.matrix(), strict=True):
        cells = [f"[{STYLES.get(label, 'bold green')}]{label}[/]" for label in labels]
        near = "" if isinstance(device, RdmaDevice) else _names(topology, device.name)
        table.add_row(f"[bold]{device.name}[/]", *cells, _numa(topology.node_of(device)), near)
    return table


def _names(topology: Topology, device: str | int) -> str:
    return ", ".join(rdma.name for rdma in topology.nearest(device)) or "none active"


def _numa(number: int) -> str:
    return str(number) if number >= 0 else "-"


def _rate(gbps: float) -> str:
    return f"{gbps:g} Gb/s" if gbps else "-"


def _ports(topology: Topology) -> Table:
    table = _table("RDMA device", "port", "state", "link", "rate", "at", "addresses")
    for device in topology.rdma:
        where = device.pci.address if device.pci else device.parent or "-"
        for port in device.ports:
            addresses = ", ".join(_addresses(port)) or "link-local only"
            link = port.link_layer
            if device.node_type == "RNIC":  # its GID is a MAC address
                link, addresses = "iWARP", f"those of {device.parent or 'its interface'}"
            state = f"[{'green' if port.active else 'red'}]{port.state}[/]"
            rate = _rate(port.gbps)
            table.add_row(device.name, str(port.number), state, link, rate, where, addresses)
    return table


def _addresses(port: Port) -> list[str]:
    """The addresses by which peers reach the port: its LID, and its routable GIDs."""
    lid = [f"LID {port.lid}"] if port.lid else []
    routable = {str(g.value.ipv4_mapped or g.value) for g in port.gids if g.routable}
    more = [f"and {len(routable) - SHOWN} more"] if len(routable) > SHOWN else []
    return lid + sorted(routable)[:SHOWN] + more


def _networks(topology: Topology) -> Table:
    table = _table("network device", "state", "MTU", "rate", "at", "NUMA")
    for net in topology.net:
        rate = _rate(net.mbps / 1000)
        where = net.pci.address if net.pci else "-"
        table.add_row(net.name, net.state, str(net.mtu), rate, where, _numa(net.numa))
    return table


def _nodes(topology: Topology) -> Table:
    table = _table("NUMA node", "CPUs", "distances", "nearest RDMA")
    for node in topology.numa:
        hops = " ".join(map(str, node.distances))
        table.add_row(str(node.number), node.cpus or "-", hops, _names(topology, node.number))
    return table


def _legend(topology: Topology) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, meaning in LEGEND.items():
        table.add_row(f"[bold]{name}[/]", meaning)
    return table

"""The Topology: GPUs, RDMA and network devices, NUMA nodes, and their distances."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from zerohop.topology.distance import LEGEND, Distance, pci_distance
from zerohop.topology.gpu import Gpu, cuda_order, read_gpus
from zerohop.topology.net import NetDevice, read_net_devices
from zerohop.topology.numa import NumaNode, read_numa_nodes
from zerohop.topology.nvlink import Links, load_nvml, read_nvlinks
from zerohop.topology.pci import read_pci_devices
from zerohop.topology.rdma import RdmaDevice, read_rdma_devices
from zerohop.topology.tree import Tree


@dataclass(frozen=True)
class Topology:
    """A machine at the time of `zh.topology()`; in a notebook it is shown as a drawing."""

    gpus: tuple[Gpu, ...]
    rdma: tuple[RdmaDevice, ...]
    net: tuple[NetDevice, ...]
    numa: tuple[NumaNode, ...]
    nvlinks: Links
    cuda: tuple[Gpu, ...]  # in the order of cuda:0, cuda:1, ...
    cuda_reason: str = ""  # why that order is unknown
    notes: tuple[str, ...] = ()  # what could not be determined, one sentence each

    @property
    def numa_text(self) -> str:
        """The number of NUMA nodes, for messages; a kernel without NUMA shows none."""
        count = len(self.numa)
        return f"{count} NUMA node{'s' * (count > 1)}" if count else "NUMA nodes not known"

    @property
    def devices(self) -> tuple[Gpu | RdmaDevice, ...]:
        """Rows and columns of the matrix: GPUs by PCI address, then RDMA devices by name."""
        return (*self.gpus, *self.rdma)

    def find(self, device: str | int) -> Gpu | RdmaDevice | NumaNode:
        """A device by its name ("cuda:0", "GPU0", "mlx5_0", a PCI address), or a NUMA node by its number.

        Raises LookupError if it does not exist.
        """
        if isinstance(device, int):
            found = [node for node in self.numa if node.number == device]
            if not found:
                raise LookupError(f"there is no NUMA node {device}: {self._choices()}")
            return found[0]
        if device.startswith("cuda"):
            return self._find_cuda(device)
        for known in self.devices:
            if device == known.name or (known.pci is not None and device == known.pci.address):
                return known
        raise LookupError(f"there is no device {device!r}: {self._choices()}")

    def _find_cuda(self, device: str) -> Gpu:
        ordinal = device.partition(":")[2] or "0"
        if not self.cuda_reason and ordinal.isdecimal() and int(ordinal) < len(self.cuda):
            return self.cuda[int(ordinal)]
        why = self.cuda_reason or self._choices()
        raise LookupError(f"there is no device {device!r}: {why}")

    def _choices(self) -> str:
        """The names that find() takes, for messages."""
        cuda = () if self.cuda_reason else (f"cuda:{ordinal}" for ordinal in range(len(self.cuda)))
        names = [*cuda, *(device.name for device in self.devices)]
        known = (
            "devices here: " + ", ".join(names) if names else "no GPU and no RDMA device is here"
        )
        return f"{known}; NUMA nodes: {', '.join(str(node.number) for node in self.numa) or 'not known'}"

    def distance(self, a: str | int, b: str | int) -> Distance:
        """The distance of two devices, or of a device and a NUMA node (NODE or SYS). Raises like find()."""
        one, other = self.find(a), self.find(b)
        if one == other:
            return Distance.X
        if isinstance(one, NumaNode) or isinstance(other, NumaNode):
            return Distance.NODE if self.node_of(one) == self.node_of(other) else Distance.SYS
        if self.nvlinks.get(frozenset((one.name, other.name))):
            return Distance.NV
        return pci_distance(one.pci, other.pci, len(self.numa))

    def label(self, a: str | int, b: str | int) -> str:
        """The distance as the matrix shows it: "PIX", "NV18". Raises like find()."""
        one, other = self.find(a), self.find(b)
        if isinstance(one, Gpu) and isinstance(other, Gpu):
            count = self.nvlinks.get(frozenset((one.name, other.name)))
            if count:
                return f"NV{count}"
        return self.distance(a, b).name

    def node_of(self, device: Gpu | RdmaDevice | NumaNode) -> int:
        """The number of a device's NUMA node, -1 if unknown. On a machine with one node it is always known."""
        if isinstance(device, NumaNode):
            return device.number
        if device.numa < 0 and device.pci is not None and len(self.numa) == 1:
            return self.numa[0].number
        return device.numa

    def nearest(
        self, device: str | int, among: Collection[str] | None = None
    ) -> tuple[RdmaDevice, ...]:
        """The RDMA devices nearest to a GPU or a NUMA node, best first; empty if none has an active port.

        All have the same distance. Faster ones come first; among equally fast ones each GPU starts with
        another, so that GPUs which share their devices spread over them. iWARP devices are left out, because
        they lack atomics: an Endpoint chooses one only where no other device serves. among: names of the only devices to consider.
        Raises like find().
        """
        start = self.find(device)
        usable = [
            rdma
            for rdma in self.rdma
            if rdma.active_ports
            and rdma.node_type == "CA"
            and (among is None or rdma.name in among)
        ]
        ranks = {rdma.name: self._rank(start, rdma) for rdma in usable}
        near = [rdma for rdma in usable if ranks[rdma.name] == min(ranks.values())]
        near.sort(key=lambda rdma: -rdma.gbps)  # stable: equal ones stay in the order of names
        fastest = sum(rdma.gbps == near[0].gbps for rdma in near)
        turn = self._turn(start) % fastest if near else 0
        return (*near[turn:fastest], *near[:turn], *near[fastest:])

    def _rank(self, start: Gpu | RdmaDevice | NumaNode, rdma: RdmaDevice) -> tuple[int, int]:
        """Sorts RDMA devices from near to far; between NUMA nodes by the firmware's table."""
        name = start.number if isinstance(start, NumaNode) else start.name
        hops = 255
        for node in self.numa:
            if node.number == self.node_of(start) and 0 <= rdma.numa < len(node.distances):
                hops = node.distances[rdma.numa]
        distance = self.distance(name, rdma.name)
        return distance, hops if distance is Distance.SYS else 0

    def _turn(self, start: Gpu | RdmaDevice | NumaNode) -> int:
        """The index of this GPU among those with the same distances to the RDMA devices."""
        if not isinstance(start, Gpu):
            return 0

        def view(gpu: Gpu) -> list[tuple[int, int]]:
            return [self._rank(gpu, rdma) for rdma in self.rdma]

        alike = [gpu for gpu in self.gpus if view(gpu) == view(start)]
        return alike.index(start)

    def matrix(self) -> list[list[str]]:
        """Labels of every pair of `devices`, row by row."""
        names = [device.name for device in self.devices]
        return [[self.label(a, b) for b in names] for a in names]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: what `zerohop topo --json` prints."""
        cuda = {gpu.name: f"cuda:{ordinal}" for ordinal, gpu in enumerate(self.cuda)}
        adapters = [_plain(device) for device in self.rdma]
        for gid in (gid for each in adapters for port in each["ports"] for gid in port["gids"]):
            gid["gid"] = gid.pop("value")
        return {
            "gpus": [
                {**_plain(gpu), "cuda": cuda.get(gpu.name), "nearest": self._names_near(gpu.name)}
                for gpu in self.gpus
            ],
            "rdma": adapters,
            "net": [_plain(net) for net in self.net],
            "numa": [
                {**_plain(node), "nearest": self._names_near(node.number)} for node in self.numa
            ],
            "devices": [device.name for device in self.devices],
            "matrix": self.matrix(),
            "notes": list(self.notes),
        }

    def _names_near(self, device: str | int) -> list[str]:
        return [rdma.name for rdma in self.nearest(device)]

    def __repr__(self) -> str:
        return "\n".join([*_text_matrix(self), *self.notes])

    def _repr_html_(self) -> str:
        from zerohop.topology.drawing import draw

        placed = [(device, self.node_of(device)) for device in self.devices]
        return draw(placed, self.numa, self.nvlinks, _summary(self))


def _plain(thing: Gpu | RdmaDevice | NetDevice | NumaNode) -> dict[str, Any]:
    """Values of JSON; a PCI device is its address."""
    fields: dict[str, Any] = json.loads(json.dumps(asdict(thing), default=str))
    if not isinstance(thing, NumaNode):
        fields |= {"pci": thing.pci and thing.pci.address, "numa": thing.numa}
    return fields


def _summary(topology: Topology) -> str:
    counts = f"{len(topology.gpus)} GPUs, {len(topology.rdma)} RDMA devices"
    return f"<Topology: {counts}, {topology.numa_text}>"


def _text_matrix(topology: Topology) -> list[str]:
    names = [device.name for device in topology.devices]
    if not names:
        return [_summary(topology)]
    rows = [["", *names, "NUMA"]]
    for device, labels in zip(topology.devices, topology.matrix(), strict=True):
        rows.append([device.name, *labels, _number(topology.node_of(device))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    seen = {label for labels in topology.matrix() for label in labels}
    used = [f"{k}: {v}" for k, v in LEGEND.items() if k in seen or (k == "NV#" and _has_nv(seen))]
    return [_summary(topology), *lines, "; ".join(used)]


def _number(node: int) -> str:
    return str(node) if node >= 0 else "-"


def _has_nv(labels: set[str]) -> bool:
    return any(label.startswith("NV") for label in labels)


def topology(
    sys: str | Path = "/sys",
    proc: str | Path = "/proc",
    environ: Mapping[str, str] | None = None,
    nvml: ModuleType | str | None = None,
) -> Topology:
    """Looks at this machine; needs neither a GPU nor CUDA nor libibverbs.

    Args:
        sys, proc: roots of the trees to read; copies from another machine show that machine.
        environ: has CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Default: os.environ.
        nvml: the module to query for NVLinks, or the reason to query none. Default: pynvml if it is installed.
    """
    tree, processes = Tree(sys), Tree(proc)
    gpus = tuple(read_gpus(read_pci_devices(tree), processes))
    links, note = read_nvlinks(gpus, nvml if nvml is not None else load_nvml())
    cuda, reason = cuda_order(gpus, os.environ if environ is None else environ)
    return Topology(
        gpus=gpus,
        rdma=tuple(read_rdma_devices(tree)),
        net=tuple(read_net_devices(tree)),
        numa=tuple(read_numa_nodes(tree)),
        nvlinks=links,
        cuda=tuple(cuda),
        cuda_reason=reason,
        notes=(note,) if note else (),
    )

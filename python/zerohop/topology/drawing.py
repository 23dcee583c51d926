"""A Topology as an SVG drawing: GPUs above, RDMA devices below, both on the shared PCIe tree.

Every device is a box in the column of its NUMA node. Boxes on one bar share a PCIe switch or host
bridge (PIX, PXB or PHB); a line above joins GPUs by NVLink. Grey, dashed boxes have no active port. Text inherits
its colour, and boxes are translucent: the drawing is readable on light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from zerohop.notebook.elements import BLUE, GREEN, GREY, Markup, element, svg
from zerohop.topology.gpu import Gpu
from zerohop.topology.numa import NumaNode
from zerohop.topology.nvlink import Links
from zerohop.topology.rdma import RdmaDevice

# Pixels.
CELL, GAP, BOX, BAR, PAD = 104, 12, 42, 20, 16
EMPTY = 130  # width of a NUMA node without devices


@dataclass
class Group:
    """Devices below one PCIe switch or host bridge."""

    title: str
    gpus: list[Gpu] = field(default_factory=list)
    rdma: list[RdmaDevice] = field(default_factory=list)

    @property
    def width(self) -> int:
        cells = max(len(self.gpus), len(self.rdma))
        return cells * CELL + (cells - 1) * GAP


@dataclass
class Node:
    """A NUMA node, or the devices without a known node."""

    title: str
    groups: dict[str, Group] = field(default_factory=dict)

    @property
    def width(self) -> int:
        inside = sum(group.width for group in self.groups.values())
        return max(EMPTY, inside + GAP * (len(self.groups) - 1)) + 2 * PAD


def draw(
    placed: Sequence[tuple[Gpu | RdmaDevice, int]],
    numa: Sequence[NumaNode],
    nvlinks: Links,
    label: str,
) -> str:
    """The drawing as an <svg> element. placed: devices, each with the number of its NUMA node, -1 if unknown."""
    nodes = _nodes(placed, numa)
    gpus = [device for device, _ in placed if isinstance(device, Gpu)]
    count = _links_of_each_pair(gpus, nvlinks)
    parts: list[Markup] = []
    centers: dict[str, int] = {}  # by GPU
    above = PAD
    if nvlinks:
        above += BAR + GAP if count else round(1.5 * _rise(len(gpus) - 1))
    has_gpus, has_rdma = bool(gpus), len(placed) > len(gpus)
    height = above + PAD + (BOX + GAP) * (has_gpus + has_rdma) + (BAR + GAP if nodes else 0) + 34
    left = PAD
    for node in nodes:
        parts.append(_rect(left, above, node.width, height - above - PAD, GREY, 0.07, 10))
        parts.append(_text(left + node.width / 2, height - PAD - 11, node.title, size=12))
        x = left + PAD
        for group in node.groups.values():
            parts += _group(group, x, above + PAD, has_gpus, centers)
            x += group.width + GAP
        left += node.width + GAP
    parts += _links(count, nvlinks, centers, above)
    width = left - GAP + PAD if nodes else 360
    if not nodes:
        parts.append(_text(width / 2, height / 2, "neither GPUs, RDMA devices nor NUMA nodes here"))
    return svg(width, height, label, *parts)


def _nodes(placed: Sequence[tuple[Gpu | RdmaDevice, int]], numa: Sequence[NumaNode]) -> list[Node]:
    known = {node.number: Node(_node_title(node)) for node in numa}
    unknown = Node("NUMA node unknown")
    for device, number in placed:
        node = known.get(number, unknown)
        group = _group_of(device, node)
        if isinstance(device, Gpu):
            group.gpus.append(device)
        else:
            group.rdma.append(device)
    return [*known.values(), *([unknown] if unknown.groups else [])]


def _node_title(node: NumaNode) -> str:
    return f"NUMA {node.number} · " + (f"CPUs {node.cpus}" if node.cpus else "memory only")


def _group_of(device: Gpu | RdmaDevice, node: Node) -> Group:
    """Devices below one root port share a tree of switches; without switches they share the host bridge."""
    if device.pci is None:
        key, title = "software", "no PCI device"
    elif len(device.pci.bridges) > 1:
        key = title = f"PCIe {device.pci.bridges[0]}"
    else:
        key = title = device.pci.path[0]
    return node.groups.setdefault(key, Group(title))


def _group(group: Group, x: int, y: int, gpu_row: bool, centers: dict[str, int]) -> list[Markup]:
    parts = []
    bar = y + (BOX + GAP if gpu_row else 0)
    below = bar + BAR + GAP
    for gpu, at in zip(group.gpus, _columns(group, x, len(group.gpus)), strict=True):
        centers[gpu.name] = at + CELL // 2
        parts += [_line(at + CELL / 2, y + BOX, at + CELL / 2, bar, GREY), _device(gpu, at, y)]
    for rdma, at in zip(group.rdma, _columns(group, x, len(group.rdma)), strict=True):
        parts += [_line(at + CELL / 2, bar, at + CELL / 2, below, GREY), _device(rdma, at, below)]
    parts.append(_rect(x, bar, group.width, BAR, GREY, 0.25, 4))
    parts.append(_text(x + group.width / 2, bar + 14, _fit(group.title, group.width), size=10))
    return parts


def _columns(group: Group, x: int, count: int) -> list[int]:
    """The x positions of `count` boxes, centered in the group."""
    indent = (group.width - count * (CELL + GAP) + GAP) // 2
    return [x + indent + index * (CELL + GAP) for index in range(count)]


def _device(device: Gpu | RdmaDevice, x: int, y: int) -> Markup:
    if isinstance(device, Gpu):
        where = device.pci.address
        below, color, dash = where, GREEN, ""
        title = f"{device.name}: {device.model or 'NVIDIA GPU'}, {where}"
    else:
        where = device.pci.address if device.pci else device.parent or "software"
        active = bool(device.active_ports)
        states = ", ".join(f"port {port.number} {port.state}" for port in device.ports)
        below = f"{device.gbps:g} Gb/s" if active else "not active"
        color = BLUE if active else GREY
        dash = "" if active else "4 3"
        title = f"{device.name}: {states or 'no port'}, {where}"
    return element(
        "g",
        element("title", title),
        _rect(x, y, CELL, BOX, color, 0.15, 6, dash),
        _text(x + CELL / 2, y + 18, _fit(device.name, CELL, 8), size=13, bold=True),
        _text(x + CELL / 2, y + 33, _fit(below, CELL), size=10),
    )


def _links_of_each_pair(gpus: Sequence[Gpu], nvlinks: Links) -> int:
    """The number of NVLinks between every pair of GPUs; 0 if pairs differ."""
    counts = {nvlinks.get(frozenset((a.name, b.name)), 0) for a, b in combinations(gpus, 2)}
    return counts.pop() if len(counts) == 1 else 0


def _rise(span: int) -> int:
    """The height of the curve between two GPUs with span - 1 others between them."""
    return 16 + 8 * span


def _links(each: int, nvlinks: Links, centers: dict[str, int], above: int) -> list[Markup]:
    """each: number of links of every pair; 0 if pairs differ."""
    top = above + PAD  # of the boxes
    if each:
        left, right = min(centers.values()), max(centers.values())
        parts = [_line(x, PAD + BAR, x, top, GREEN, 3) for x in centers.values()]
        parts.append(_rect(left - 40, PAD, right - left + 80, BAR, GREEN, 0.15, 4))
        label = f"NVLink: {each} between every two GPUs"
        return [*parts, _text((left + right) / 2, PAD + 14, label, size=11)]
    parts = []
    order = list(centers)
    for pair, count in sorted(nvlinks.items(), key=lambda item: sorted(item[0])):
        a, b = sorted(pair, key=order.index)
        rise = _rise(order.index(b) - order.index(a))
        x1, x2 = centers[a] + 10, centers[b] - 10
        curve = f"M{x1} {top} C{x1} {top - 2 * rise}, {x2} {top - 2 * rise}, {x2} {top}"
        width = f"{1 + min(count, 18) / 6:.1f}"
        parts.append(element("path", d=curve, fill="none", stroke=GREEN, stroke_width=width))
        parts.append(_text((x1 + x2) / 2, top - 1.5 * rise - 3, f"NV{count}", size=10))
    return parts


def _fit(text: str, width: int, letter: int = 6) -> str:
    """Cuts a text to the width of its box; `letter` is the width of a letter, in pixels."""
    room = max(3, width // letter)
    return text if len(text) <= room else text[: room - 1] + "…"


def _rect(
    x: float, y: float, w: float, h: float, color: str, glass: float, radius: int, dash: str = ""
) -> Markup:
    return element(
        "rect",
        x=x,
        y=y,
        width=w,
        height=h,
        rx=radius,
        fill=color,
        fill_opacity=glass,
        stroke=color,
        stroke_dasharray=dash or None,
    )


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: float = 1.5) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color, stroke_width=width)


def _text(x: float, y: float, text: str, size: int = 12, bold: bool = False) -> Markup:
    weight = 600 if bold else None
    return element(
        "text",
        text,
        x=x,
        y=y,
        text_anchor="middle",
        font_size=size,
        fill="currentColor",
        font_weight=weight,
    )

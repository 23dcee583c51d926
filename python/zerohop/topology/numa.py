"""NUMA nodes of the CPUs, from /sys/devices/system/node."""

from __future__ import annotations

from dataclasses import dataclass

from zerohop.topology.tree import Tree


@dataclass(frozen=True)
class NumaNode:
    number: int
    cpus: str  # "0-27,56-83"; empty for a node with only memory
    distances: tuple[
        int, ...
    ]  # to each node in the order of their numbers; 10 is the node itself (ACPI SLIT)


def read_numa_nodes(tree: Tree) -> list[NumaNode]:
    where = "devices/system/node"
    return [
        NumaNode(
            number=int(name[4:]),
            cpus=tree.text(f"{where}/{name}/cpulist") or "",
            distances=tuple(map(int, (tree.text(f"{where}/{name}/distance") or "").split())),
        )
        for name in tree.names(where)
        if name.startswith("node") and name[4:].isdecimal()
    ]

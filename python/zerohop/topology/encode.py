"""A Topology as plain values for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerohop.topology.rdma import Port, RdmaDevice

if TYPE_CHECKING:
    from zerohop.topology.topology import Topology


def encode(topology: Topology) -> dict[str, Any]:
    cuda = [gpu.name for gpu in topology.cuda]
    return {
        "gpus": [
            {
                "name": gpu.name,
                "cuda": f"cuda:{cuda.index(gpu.name)}" if gpu.name in cuda else None,
                "model": gpu.model,
                "uuid": gpu.uuid,
                "pci": gpu.pci.address,
                "numa": gpu.numa,
                "nearest": [rdma.name for rdma in topology.nearest(gpu.name)],
            }
            for gpu in topology.gpus
        ],
        "rdma": [_rdma(device) for device in topology.rdma],
        "net": [
            {
                "name": net.name,
                "state": net.state,
                "mtu": net.mtu,
                "mbps": net.mbps,
                "pci": None if net.pci is None else net.pci.address,
                "numa": net.numa,
            }
            for net in topology.net
        ],
        "numa": [
            {
                "number": node.number,
                "cpus": node.cpus,
                "distances": list(node.distances),
                "nearest": [rdma.name for rdma in topology.nearest(node.number)],
            }
            for node in topology.numa
        ],
        "devices": [device.name for device in topology.devices],
        "matrix": topology.matrix(),
        "notes": list(topology.notes),
    }


def _rdma(device: RdmaDevice) -> dict[str, Any]:
    return {
        "name": device.name,
        "node_type": device.node_type,
        "pci": None if device.pci is None else device.pci.address,
        "parent": device.parent,
        "numa": device.numa,
        "ports": [_port(port) for port in device.ports],
    }


def _port(port: Port) -> dict[str, Any]:
    return {
        "number": port.number,
        "state": port.state,
        "link_layer": port.link_layer,
        "gbps": port.gbps,
        "lid": port.lid,
        "gids": [
            {"index": gid.index, "gid": str(gid.value), "type": gid.type, "netdev": gid.netdev}
            for gid in port.gids
        ],
    }

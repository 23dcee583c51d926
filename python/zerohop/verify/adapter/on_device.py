"""Steps of the device by itself: it is opened, its port and address, queue pairs that are not connected, registrations."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from zerohop import verbs
from zerohop.doctor.rdma import IWARP, LARGEST_MTU, NETDEV_MTU, bring_up
from zerohop.topology import Port, RdmaDevice, topology
from zerohop.verify.adapter.setup import Setup
from zerohop.verify.adapter.step import Failed, Figures, Steps

STEPS = Steps()
SHOWN = ("fw_ver", "max_qp", "max_qp_wr", "max_sge", "max_mr_size", "max_qp_rd_atom", "atomic_cap")
REGISTERED = (4 << 10, 64 << 20)  # bytes
QUICK_REGISTERED = (4 << 10, 4 << 20)


@STEPS.add("open", "The device can be opened, and a protection domain allocated on it.")
def open_device(setup: Setup) -> Figures:
    device = setup.device
    limits = device.attributes
    return {"provider": device.provider, **{name: limits[name] for name in SHOWN}}


@STEPS.add("port", "Its port is up.", needs=("open",))
def port(setup: Setup) -> Figures:
    device = setup.device
    found = device.port_attributes
    if found["state"] != "ACTIVE":
        raise Failed(f"port {device.port} of {device.name} is {found['state']}", _remedy(device))
    known = _port_in_sys(device)
    rate = {"rate_gbps": known[1].gbps} if known is not None else {}
    return {
        "port": device.port,
        "state": found["state"],
        "link_layer": found["link_layer"],
        **rate,
        "lid": found["lid"],
    }


@STEPS.add("gid", "The port has an address that queue pairs can use, of a known kind.", ("open",))
def gid(setup: Setup) -> Figures:
    device = setup.device
    found: dict[str, Any] = {"gid": device.gid, "index": device.gid_index, "kind": device.gid_kind}
    if device.port_attributes["link_layer"] == "Ethernet" and device.gid_kind == "RoCE v1":
        raise Failed(
            f"the best GID of port {device.port}, {device.gid}, is of RoCE v1, which is not routed",
            "give its network device an IP address: ip addr add ADDRESS/24 dev DEVICE",
        )
    if device.gid.startswith("fe80:"):
        found["note"] = "link-local: it reaches one Ethernet segment, or subnet, only"
    return found


@STEPS.add("mtu", "The size of packets on the port.", needs=("open",))
def mtu(setup: Setup) -> Figures:
    found = setup.device.port_attributes
    active, largest = found["active_mtu"], found["max_mtu"]
    if active <= 0:
        raise Failed(f"port {setup.device.port} reports no MTU", "see whether the port is up")
    figures = {"active_bytes": active, "largest_bytes": largest}
    if active < min(largest, LARGEST_MTU):
        figures["note"] = (
            f"an MTU of {NETDEV_MTU} of the network device (and of switches) allows more"
        )
    return figures


@STEPS.add("create queues", "Completion queues and a queue pair are made.", ("open",))
def create_queues(setup: Setup) -> Figures:
    near = setup.near
    near.open(1)
    own = near.pairs[0].options
    return {name: own[name] for name in ("send_depth", "receive_depth", "send_sge", "inline_bytes")}


@STEPS.add(
    "register",
    "Host memory is registered and released, with read, write and atomic access.",
    ("open",),
)
def register(setup: Setup) -> Figures:
    domain = setup.device.pd()
    figures: dict[str, Any] = {}
    for nbytes in QUICK_REGISTERED if setup.spec.quick else REGISTERED:
        memory = np.zeros(nbytes, np.uint8)
        begin = time.perf_counter()
        region = domain.register(memory)
        took = time.perf_counter() - begin
        region.close()
        figures[f"{nbytes >> 10}_KiB_us"] = round(took * 1e6, 1)
    domain.register(np.zeros(4096, np.uint8), access=verbs.Access.REMOTE_READ).close()
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = limit == resource.RLIM_INFINITY
    figures["locked_memory_limit"] = "unlimited" if unlimited else f"{limit >> 10} KiB"
    return figures


def is_iwarp(device: verbs.Device) -> bool:
    known = _port_in_sys(device)
    return known is not None and known[0].node_type == IWARP


def _port_in_sys(device: verbs.Device) -> tuple[RdmaDevice, Port] | None:
    for found in topology().rdma:
        for each in found.ports:
            if (found.name, each.number) == (device.name, device.port):
                return found, each
    return None


def _remedy(device: verbs.Device) -> str:
    known = _port_in_sys(device)
    return "see that its network device is up" if known is None else bring_up(*known)

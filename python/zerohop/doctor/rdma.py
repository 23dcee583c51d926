"""Checks of RDMA devices, from the library down to the MTU."""

from __future__ import annotations

from collections.abc import Iterator

from zerohop.doctor.finding import Finding, State, gathered, worst
from zerohop.doctor.host import Host
from zerohop.topology import NetDevice, Port, RdmaDevice

INSTALL = "apt-get install libibverbs1 ibverbs-providers (dnf install libibverbs)"
LARGEST_MTU = 4096  # bytes of payload in an RDMA packet (IBTA specification, 9.2)
IWARP = "RNIC"  # node type
NETDEV_MTU = 4200  # the network device's MTU for it, with headers

# Kernel drivers of PCI devices whose provider in libibverbs has another name.
PROVIDERS = {
    "mlx5_core": "mlx5",
    "mlx4_core": "mlx4",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "idpf": "irdma",
    "hfi1": "hfi1verbs",
    "qede": "qedr",
    "hns3": "hns",
    "ib_mthca": "mthca",
}


def libibverbs(host: Host) -> Finding:
    """Whether libibverbs can be loaded. soft0 does not need it."""
    reason = host.verbs.reason
    if not reason:
        return Finding("libibverbs", "ok", "libibverbs.so.1 is there")
    if host.topology.rdma:
        return Finding("libibverbs", "fail", reason, INSTALL)
    return Finding("libibverbs", "absent", "not installed, and no RDMA device needs it")


def providers(host: Host) -> Finding:
    """Whether libibverbs has a driver for every RDMA device of the kernel.

    Each provider has a file in /etc/libibverbs.d (rdma-core, libibverbs/README).
    """
    if not host.topology.rdma:
        return Finding("providers", "absent", "no RDMA device")
    known = {device.name for device in host.verbs.devices}
    missing = [device for device in host.topology.rdma if device.name not in known]
    if not missing:
        return Finding("providers", "ok", f"libibverbs lists {', '.join(sorted(known))}")
    announced = {
        (host.tree.text(f"etc/libibverbs.d/{name}") or "").partition("driver ")[2].strip()
        for name in host.tree.names("etc/libibverbs.d")
    }
    lines = []
    for device in missing:
        provider = provider_of(device)
        why = "is listed but fails" if provider in announced else "is missing"
        lines.append(f"{device.name}: provider {provider} {why}")
    return Finding("providers", "fail", "; ".join(lines), INSTALL)


def provider_of(device: RdmaDevice) -> str:
    driver = None if device.pci is None else device.pci.driver
    if driver is None:  # a software device
        return "siw" if device.node_type == "RNIC" else "rxe"
    return PROVIDERS.get(driver, driver)


def uverbs(host: Host) -> Finding:
    """Whether the device files exist and may be used; containers often lack them."""
    if not host.topology.rdma:
        return Finding("uverbs", "absent", "no RDMA device")
    files = {
        host.tree.text(f"sys/class/infiniband_verbs/{name}/ibdev"): f"dev/infiniband/{name}"
        for name in host.tree.names("sys/class/infiniband_verbs")
        if name.startswith("uverbs")
    }
    unknown = [device.name for device in host.topology.rdma if device.name not in files]
    if unknown:
        fix = "modprobe ib_uverbs"
        return Finding("uverbs", "fail", f"the kernel offers none for {', '.join(unknown)}", fix)
    mine = [files[device.name] for device in host.topology.rdma]
    if any(device.node_type == IWARP for device in host.topology.rdma):
        mine.append("dev/infiniband/rdma_cm")  # connects their queue pairs; module rdma_ucm
    missing = [f"/{path}" for path in mine if not host.tree.exists(path)]
    if missing:
        fix = "start udev, or create them: mknod"
        if host.container:
            fix = "start the container with --device=/dev/infiniband --ulimit memlock=-1"
        return Finding("uverbs", "fail", f"{', '.join(missing)} missing", fix)
    closed = [f"/{path}" for path in mine if not host.usable(path)]
    if closed:
        fix = "chmod 666 them; permanently by a udev rule"
        return Finding("uverbs", "fail", f"{', '.join(closed)} not permitted", fix)
    failed = [f"{device.name}: {device.reason}" for device in host.verbs.devices if device.reason]
    if failed:
        return Finding("uverbs", "fail", "; ".join(failed), "read the kernel log: dmesg")
    return Finding("uverbs", "ok", ", ".join(f"/{path}" for path in mine))


def transport(host: Host) -> Finding:
    """Which devices use InfiniBand or RoCE, and which iWARP."""
    others = [device.name for device in host.topology.rdma if device.node_type != IWARP]
    iwarp = [device.name for device in host.topology.rdma if device.node_type == IWARP]
    lines = [f"{', '.join(others)}: InfiniBand or RoCE"] if others else []
    if iwarp:
        lines.append(f"{', '.join(iwarp)}: iWARP, connected by rdma_cm, without atomics")
    if not lines:
        return Finding("transport", "absent", "no RDMA device")
    return Finding("transport", "ok", "; ".join(lines))


def _ports(host: Host) -> Iterator[tuple[RdmaDevice, Port]]:
    for device in host.topology.rdma:
        for port in device.ports:
            yield device, port


def _packet_ports(host: Host) -> Iterator[tuple[RdmaDevice, Port]]:
    """Without those of iWARP, which is TCP: its addresses and segments are the kernel's affair."""
    return (pair for pair in _ports(host) if pair[0].node_type != IWARP)


def ports(host: Host) -> Finding:
    """Which ports are active."""
    every = list(_ports(host))
    if not every:
        return Finding("ports", "absent", transport(host).evidence)
    idle = [(device, port) for device, port in every if not port.active]
    text = ", ".join(f"{device.name}/{port.number} {port.state}" for device, port in every)
    if not idle:
        return Finding("ports", "ok", text)
    fixes = dict.fromkeys(bring_up(device, port) for device, port in idle)
    state: State = "fail" if len(idle) == len(every) else "warn"
    return Finding("ports", state, text, "; ".join(fixes))


def bring_up(device: RdmaDevice, port: Port) -> str:
    """What to do about a port that is not active."""
    if port.link_layer == "InfiniBand" and port.state in ("INIT", "ARMED"):
        return "start a subnet manager in the fabric (opensm)"
    netdev = device.parent or next((gid.netdev for gid in port.gids if gid.netdev), None)
    if port.link_layer == "Ethernet" and netdev:
        return f"ip link set {netdev} up, and check its cable"
    return f"check the cable of {device.name} port {port.number}"


def gids(host: Host) -> Finding:
    """Whether active Ethernet ports have a RoCE v2 address that can be routed.

    A port gets one for each IP address of its network device (kernel: ABI/stable/
    sysfs-class-infiniband, gid_attrs).
    """
    lines, states, fixes = [], list[State](), []
    for device, port in _packet_ports(host):
        if not port.active or port.link_layer != "Ethernet":
            continue
        v2 = [gid for gid in port.gids if gid.type == "RoCE v2"]
        routable = [gid for gid in v2 if gid.routable]
        where = f"{device.name}/{port.number}"
        netdev = device.parent or next((gid.netdev for gid in v2 if gid.netdev), "DEVICE")
        if routable:
            value = routable[0].value
            lines.append(f"{where}: {value.ipv4_mapped or value} at index {routable[0].index}")
            states.append("ok")
            continue
        fixes.append(f"give it an IP address: ip addr add ADDRESS/24 dev {netdev}")
        if v2:
            lines.append(f"{where}: link-local only, reaches one Ethernet segment")
            states.append("warn")
        else:
            lines.append(f"{where}: no RoCE v2 GID")
            states.append("fail")
    if not lines:
        return Finding("gids", "absent", "no active RoCE port")
    return Finding("gids", worst(states), "; ".join(lines), "; ".join(dict.fromkeys(fixes)))


def mtu(host: Host) -> Finding:
    """Whether packets are as large as RDMA allows; small ones cost bandwidth.

    On Ethernet the RDMA MTU is the largest power of two that fits the network device's MTU, headers
    included.
    """
    nets = {net.name: net for net in host.topology.net}
    mtus = {device.name: device.mtus for device in host.verbs.devices}
    lines, fixes = [], []
    for device, port in _packet_ports(host):
        active, largest = mtus.get(device.name, {}).get(str(port.number), [0, 0])
        if not port.active or not active:
            continue
        net = _network(device, port, nets)
        beside = f" ({net.name} {net.mtu})" if net else ""
        lines.append(f"{device.name}/{port.number} {active}{beside}")
        if active >= min(largest or LARGEST_MTU, LARGEST_MTU):
            continue
        if net is not None:
            fixes.append(f"ip link set {net.name} mtu {NETDEV_MTU} (switches too)")
        else:
            fixes.append("raise the MTU of the partition in the subnet manager")
    return gathered("mtu", lines, fixes, "no active port that could be asked")


def _network(device: RdmaDevice, port: Port, nets: dict[str, NetDevice]) -> NetDevice | None:
    names = [device.parent, *(gid.netdev for gid in port.gids)]
    return next((nets[name] for name in names if name in nets), None)

"""Machines as trees of files under /sys, /proc, /dev and /etc, written from a compact description.

A place on the PCI bus is written as the way to it: "0000:17 01.0 18:00.0 19:00.0 1a:00.0" is the host
bridge pci0000:17, its root port 0000:17:01.0, a switch's upstream and downstream port, the device.
"""

from collections.abc import Sequence
from pathlib import Path

NVIDIA, MELLANOX = 0x10DE, 0x15B3
BRIDGE, GPU, VGA, ETHERNET = 0x060400, 0x030200, 0x030000, 0x020000


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys, self.proc = root / "sys", root / "proc"
        for folder in ("sys/class", "sys/bus/pci/devices", "proc", "dev", "etc"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: str | int) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / target)

    def numa(self, *cpus: str, distances: Sequence[str] = ()) -> None:
        """One node for each list of CPUs; distances: the rows of the firmware's table."""
        for number, text in enumerate(cpus):
            row = distances[number] if distances else _default_row(number, len(cpus))
            self.write(f"sys/devices/system/node/node{number}/cpulist", text)
            self.write(f"sys/devices/system/node/node{number}/distance", row)

    def pci(
        self, way: str, vendor: int, kind: int, numa: int = -1, product: int = 1, driver: str = ""
    ) -> str:
        """Adds a PCI device and the bridges above it; returns its folder below the root."""
        host, *hops = way.split()
        folder = f"sys/devices/pci{host}"
        for index, hop in enumerate(hops):
            bus = host if index == 0 else host.partition(":")[0]
            address = f"{bus}:{hop}"
            folder = f"{folder}/{address}"
            last = index == len(hops) - 1
            if (self.root / folder).exists() and not last:
                continue
            self.write(f"{folder}/vendor", f"{vendor if last else 0x1000:#06x}")
            self.write(f"{folder}/device", f"{product if last else 1:#06x}")
            self.write(f"{folder}/class", f"{kind if last else BRIDGE:#08x}")
            self.write(f"{folder}/numa_node", numa)
            self.link(f"sys/bus/pci/devices/{address}", folder)
        if driver:
            (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
            self.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
        return folder

    def gpu(self, way: str, numa: int = -1, product: int = 0x2335, kind: int = GPU) -> str:
        folder = self.pci(way, NVIDIA, kind, numa, product, driver="nvidia")
        address = folder.rpartition("/")[2]
        minor = len(list(self.proc.glob("driver/nvidia/gpus/*")))
        self.write(
            f"proc/driver/nvidia/gpus/{address}/information",
            f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t GPU-{minor:08x}-1a5e\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {minor}",
        )
        return folder

    def rdma(
        self,
        name: str,
        way: str | None,
        numa: int = -1,
        *,
        states: Sequence[str] = ("4: ACTIVE",),
        link: str = "InfiniBand",
        rate: str = "400 Gb/sec (4X NDR)",
        gids: Sequence[tuple[int, str, str, str]] = (),
        node_type: str = "1: CA",
        driver: str = "mlx5_core",
        parent: str = "",
    ) -> None:
        """An RDMA device with a port for each state; gids: (index, value, type, netdev), on every port."""
        if way is None:
            folder = f"sys/devices/virtual/infiniband/{name}"
        else:
            device = self.pci(way, MELLANOX, ETHERNET, numa, driver=driver)
            folder = f"{device}/infiniband/{name}"
        self.write(f"{folder}/node_type", node_type)
        if way is not None:
            self.link(f"{folder}/device", device)
        if parent:
            self.write(f"{folder}/parent", parent)
        for number, state in enumerate(states, 1):
            port = f"{folder}/ports/{number}"
            self.write(f"{port}/state", state)
            self.write(f"{port}/link_layer", link)
            self.write(f"{port}/rate", rate)
            self.write(f"{port}/lid", f"{number if link == 'InfiniBand' else 0:#x}")
            for index in range(4):
                self.write(f"{port}/gids/{index}", ":".join(["0000"] * 8))
            for index, value, kind, netdev in gids:
                self.write(f"{port}/gids/{index}", value)
                self.write(f"{port}/gid_attrs/types/{index}", kind)
                self.write(f"{port}/gid_attrs/ndevs/{index}", netdev)
        self.link(f"sys/class/infiniband/{name}", folder)

    def net(
        self,
        name: str,
        way: str | None = None,
        *,
        mtu: int = 1500,
        state: str = "up",
        speed: int = -1,
    ) -> None:
        """A network device; its PCI device, if it has one, is there already or is made here."""
        if way is None:
            folder = f"sys/devices/virtual/net/{name}"
        else:
            device = self.pci(way, 0x8086, ETHERNET)
            folder = f"{device}/net/{name}"
            self.link(f"{folder}/device", device)
        self.write(f"{folder}/mtu", mtu)
        self.write(f"{folder}/operstate", state)
        self.write(f"{folder}/speed", speed)
        self.link(f"sys/class/net/{name}", folder)


def _default_row(number: int, count: int) -> str:
    return " ".join("10" if other == number else "21" for other in range(count))


ROCE_GIDS = (
    (0, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "IB/RoCE v1", "eth0"),
    (1, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2", "eth0"),
    (3, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", "eth0"),
)


def dgx(root: Path) -> Machine:
    """8 GPUs and 8 adapters: two sockets, two PCIe switches each, 2 GPUs and 2 adapters on a switch."""
    machine = Machine(root)
    machine.numa("0-55,112-167", "56-111,168-223")
    for switch, bus in enumerate(("17", "3a", "97", "ba")):
        numa = switch // 2
        for slot in range(2):
            number = 2 * switch + slot
            up = f"0000:{bus} 01.0 {bus[0]}8:00.0"
            machine.gpu(f"{up} {bus[0]}9:0{slot}.0 {bus[0]}{'bc'[slot]}:00.0", numa)
            way = f"{up} {bus[0]}9:1{slot}.0 {bus[0]}{'de'[slot]}:00.0"
            machine.rdma(f"mlx5_{number}", way, numa)
    machine.net("lo", mtu=65536, state="unknown")
    return machine


def workstation(root: Path) -> Machine:
    """One GPU and one RoCE adapter with two ports, each on a root port of its own; one port is down."""
    machine = Machine(root)
    machine.numa("0-15")
    machine.gpu("0000:00 01.0 01:00.0", 0, kind=VGA)
    machine.rdma(
        "mlx5_0",
        "0000:00 02.0 02:00.0",
        0,
        states=("1: DOWN", "4: ACTIVE"),
        link="Ethernet",
        rate="100 Gb/sec (4X EDR)",
        gids=ROCE_GIDS,
    )
    machine.net("eth0", "0000:00 03.0 03:00.0", mtu=9000, speed=100000)
    return machine


def virtual(root: Path) -> Machine:
    """A guest: two GPUs and an adapter flat on one bus, and no NUMA node named."""
    machine = Machine(root)
    machine.numa("0-31")
    machine.pci("0000:00 00.0", 0x8086, 0x060000)
    machine.gpu("0000:00 06.0")
    machine.gpu("0000:00 07.0")
    machine.rdma("mlx5_0", "0000:00 08.0")
    machine.net("eth0", "0000:00 03.0")
    return machine


def software(root: Path) -> Machine:
    """No GPU and no adapter, but Soft-RoCE on a dummy network device."""
    machine = Machine(root)
    machine.numa("0-1")
    machine.net("dmy0", mtu=4200, state="unknown")
    machine.rdma(
        "rxe0",
        None,
        link="Ethernet",
        rate="2.5 Gb/sec (1X SDR)",
        gids=((0, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2", "dmy0"),),
        parent="dmy0",
    )
    return machine


def plain(root: Path) -> Machine:
    """A laptop: neither a GPU nor an RDMA device."""
    machine = Machine(root)
    machine.numa("0-7")
    machine.net("lo", mtu=65536, state="unknown")
    machine.net("eth0", "0000:00 03.0", speed=1000)
    return machine


def without_adapter(root: Path) -> Machine:
    """Two GPUs on two sockets, and no RDMA device."""
    machine = Machine(root)
    machine.numa("0-15", "16-31")
    machine.gpu("0000:17 01.0 18:00.0", 0)
    machine.gpu("0000:97 01.0 98:00.0", 1)
    return machine

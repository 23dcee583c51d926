"""PCI devices and their place:  /sys/bus/pci/devices and the tree /sys/devices/pci*."""

from __future__ import annotations

from dataclasses import dataclass

from zerohop.topology.tree import Tree

NVIDIA = 0x10DE
VGA, CONTROLLER_3D = 0x0300, 0x0302  # PCI class codes of display devices, without the interface
BRIDGE = 0x0604


@dataclass(frozen=True)
class PciDevice:
    address: str  # "0000:3b:00.0"
    path: tuple[str, ...]  # from the host bridge to the device: ("pci0000:3a", "0000:3a:00.0", ...)
    vendor: int
    product: int
    kind: int  # class code without the interface: 0x0302
    numa: int  # -1 if the firmware does not report it
    driver: str | None  # kernel driver: "nvidia", "mlx5_core"

    @property
    def bridges(self) -> tuple[str, ...]:
        """Addresses of the bridges above it, root port first."""
        return self.path[1:-1]


def read_pci_device(tree: Tree, link: str) -> PciDevice | None:
    """The PCI device that a link of sysfs leads to; None if it is not on a PCI bus.

    A device below a PCI device, such as a virtio network device, counts as that PCI device.
    """
    target = tree.target(link)
    parts = target.parts if target is not None else ()
    first = next((i for i, part in enumerate(parts) if part.startswith("pci")), None)
    if first is None:
        return None
    end = first + 1
    while end < len(parts) and parts[end].count(":") == 2:  # domain:bus:device.function
        end += 1
    if end - first < 2:
        return None
    where = "/".join(parts[:end])
    driver = tree.target(f"{where}/driver")
    numa = tree.integer(f"{where}/numa_node")
    return PciDevice(
        address=parts[end - 1],
        path=parts[first:end],
        vendor=tree.integer(f"{where}/vendor") or 0,
        product=tree.integer(f"{where}/device") or 0,
        kind=(tree.integer(f"{where}/class") or 0) >> 8,
        numa=-1 if numa is None else numa,
        driver=None if driver is None else driver.name,
    )


def read_pci_devices(tree: Tree) -> list[PciDevice]:
    found = (read_pci_device(tree, f"bus/pci/devices/{n}") for n in tree.names("bus/pci/devices"))
    return [device for device in found if device is not None]

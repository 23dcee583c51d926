"""The link between two GPUs of this machine, as a text that continues "from one to the other"."""

from __future__ import annotations

from functools import cache

from zerohop.topology.distance import LEGEND
from zerohop.topology.gpu import Gpu
from zerohop.topology.nvlink import load_nvml, read_speed
from zerohop.topology.topology import Topology, topology


@cache
def between(near: str, far: str) -> str:
    """As describe(), for this machine at the first call; the core calls it for Route.reason."""
    return describe(topology(), near, far)


def describe(machine: Topology, near: str, far: str) -> str:
    """ " over 18 NVLinks (about 478 GB/s each way)", " over PCIe (...)", or why it is unknown.

    near, far: PCI addresses, such as "0000:3b:00.0".
    """
    gpus = {gpu.pci.address: gpu for gpu in machine.gpus}
    one, other = gpus.get(near), gpus.get(far)
    if one is None or other is None:
        return " (over an unknown link: /sys does not show both GPUs)"
    count = machine.nvlinks.get(frozenset((one.name, other.name)), 0)
    if count:
        return f" over {count} NVLink{'s' * (count > 1)}{_speed(one, other, count)}"
    if machine.notes:
        return f" ({'; '.join(machine.notes)})"
    return f" over PCIe ({LEGEND[machine.distance(near, far).name]})"


def _speed(one: Gpu, other: Gpu, count: int) -> str:
    """Both ends run at the speed of the slower link."""
    nvml = load_nvml()
    if isinstance(nvml, str):
        return ""
    each = min(read_speed(one, nvml), read_speed(other, nvml))
    return f" (about {count * each:.0f} GB/s each way)" if each else ""

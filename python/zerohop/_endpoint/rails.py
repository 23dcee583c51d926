"""Which devices a process takes: its GPU of several; the adapters that it names, a rail each, or else the nearest."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from zerohop import _core


def told_local_rank(default: int = 0) -> int:
    """As $ZEROHOP_LOCAL_RANK has it, else the launcher; default: without one, with one that does not tell it, or with one
    whose variables say nothing, of which World.from_env() complains. Raises ValueError.
    """
    text = os.environ.get("ZEROHOP_LOCAL_RANK", "")
    if text:
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(
                f"ZEROHOP_LOCAL_RANK={text!r} is not a whole number >= 0: correct or unset it"
            )
        return int(text)
    from zerohop._world.launch import launched

    try:
        told = launched(os.environ)
    except ValueError:
        told = None
    return default if told is None or told.local_rank is None else told.local_rank


def local_gpu(local_rank: int | None = None) -> str:
    """The GPU of this rank, as ``"cuda:3"``; ``"cpu"`` where the process sees none. It makes no CUDA context.

    Ranks of a host take its GPUs in turn. Where the launcher shows each rank GPUs of its own (``CUDA_VISIBLE_DEVICES``), those
    are counted from ``cuda:0`` on, and a rank with one has that. Call it before anything makes a context, which would be on
    ``cuda:0``, once for each rank: ``torch.cuda.set_device(zerohop.local_gpu())``.

    local_rank: of this process on its host. Default: ``$ZEROHOP_LOCAL_RANK``, else what torchrun, mpirun or srun has told,
        else 0.
    """
    if local_rank is None:
        local_rank = told_local_rank()
    count = _core.gpu_count()
    return f"cuda:{local_rank % count}" if count else "cpu"


def joined(device: str | Iterable[str]) -> str:
    """The names with commas in between, as the core takes them. Raises TypeError, ValueError."""
    if isinstance(device, str) and device.strip():
        return device
    if not isinstance(device, Iterable):
        raise TypeError(f"device must be a str or a list of them, not {type(device).__name__}")
    names = list(device)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a device must be a str, not {type(name).__name__}")
        if not name or "," in name:
            raise ValueError(f"{name!r} is not the name of a device")
    if not "".join(names).strip():
        raise ValueError("device names no device: leave it out for the first that can serve")
    return ",".join(names)


def interface_hint(devices: str) -> str:
    """Where a network interface, or its address, was named in place of a device: which device is there; else nothing."""
    for name in (name.strip() for name in devices.split(",")):
        what = _of_network(name)
        if what and not Path("/sys/class/infiniband", name).exists():
            return f"{name} is {what}: soft0@{name} is the software HCA there"
    return ""


def _of_network(name: str) -> str:
    with suppress(ValueError):
        return f"an IPv{ipaddress.ip_address(name).version} address"
    with suppress(OSError, ValueError):  # ValueError: a null character
        socket.if_nametoindex(name)
        return "a network interface"
    return ""


def nearest_rails(devices: str) -> dict[str, int]:
    """The rail nearest to each GPU and, of several, to each NUMA node that the topology knows.

    devices: names with commas in between. GPUs by their names in PyTorch ("cuda:0"), nodes as
    "numa:1". Empty where there is but one device, or none is in the topology.
    """
    names = [name.strip() for name in devices.split(",")]
    if len(names) < 2:
        return {}
    from zerohop.topology import topology  # costs more than the rest of an Endpoint

    machine = topology()
    places: dict[str, str | int] = {f"cuda:{n}": f"cuda:{n}" for n in range(len(machine.cuda))}
    if len(machine.numa) > 1:
        places |= {f"numa:{node.number}": node.number for node in machine.numa}
    nearest = {}
    for place, device in places.items():
        near = machine.nearest(device, among=names)
        if near:
            nearest[place] = names.index(near[0].name)
    return nearest


def preferred_adapters(
    root: Path = Path("/"), local_rank: int | None = None
) -> tuple[list[str], str]:
    """The adapters to be tried first where none is named: the nearest to a GPU, by default this rank's; and why them.

    Nothing to prefer ([], "") with fewer than two adapters, or without a GPU whose place is known.
    """
    adapters, gpus = root / "sys/class/infiniband", root / "proc/driver/nvidia/gpus"
    if not gpus.is_dir() or not adapters.is_dir() or len(list(adapters.iterdir())) < 2:
        return [], ""
    from zerohop.topology import topology

    machine = topology(root / "sys", root / "proc", nvml="not asked: only PCIe counts here")
    if not machine.cuda:
        return [], ""
    if local_rank is None:
        local_rank = told_local_rank()
    gpu = f"cuda:{local_rank % len(machine.cuda)}"  # as local_gpu(), without asking the driver
    near = machine.nearest(gpu)
    if not near:
        return [], ""
    distance = machine.label(gpu, near[0].name)
    return [rdma.name for rdma in near], f"it is the adapter nearest to {gpu} ({distance})"

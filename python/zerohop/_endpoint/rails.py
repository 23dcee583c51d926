"""The devices of a process: its GPU, and its adapters (rails), either named or the nearest."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from zerohop import _core


def launcher_local_rank(default: int = 0) -> int:
    """$ZEROHOP_LOCAL_RANK, else the launcher's local rank. default: if there is no launcher, it does not set one, or its
    variables are invalid (World.from_env() reports those). Raises ValueError.
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
        launch = launched(os.environ)
    except ValueError:
        launch = None
    return default if launch is None or launch.local_rank is None else launch.local_rank


def local_gpu(local_rank: int | None = None) -> str:
    """The GPU of this rank, as ``"cuda:3"``; ``"cpu"`` if the process sees none. It makes no CUDA context.

    Ranks of a host take its GPUs in turn. If the launcher shows each rank only its own GPUs (``CUDA_VISIBLE_DEVICES``), these
    count from ``cuda:0``, and a rank with one GPU has that. Call it before anything makes a context, which would otherwise be on
    ``cuda:0`` for every rank: ``torch.cuda.set_device(zerohop.local_gpu())``.

    local_rank: number of this process on its host. Default: ``$ZEROHOP_LOCAL_RANK``, else the one that torchrun, mpirun or
        srun sets, else 0.
    """
    if local_rank is None:
        local_rank = launcher_local_rank()
    count = _core.gpu_count()
    return f"cuda:{local_rank % count}" if count else "cpu"


def joined(device: str | Iterable[str]) -> str:
    """The names, separated by commas, in the form of the core. Raises TypeError, ValueError."""
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
        raise ValueError("device names no device: leave it out for the first usable one")
    return ",".join(names)


def interface_hint(devices: str) -> str:
    """If a network interface or address was named instead of a device: the device there; else ""."""
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
    """The rail nearest to each GPU and, if there are several, to each NUMA node.

    devices: names, separated by commas. GPUs have their PyTorch names ("cuda:0"), nodes are
    "numa:1". Empty if there is only one device, or the topology knows none of them.
    """
    names = [name.strip() for name in devices.split(",")]
    if len(names) < 2:
        return {}
    from zerohop.topology import topology  # slower to import than the rest of an Endpoint

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
    """The adapters to try first if none is named, and why: the nearest to a GPU, by default this rank's.

    ([], "") with fewer than two adapters, or without a GPU whose place is known.
    """
    adapters, gpus = root / "sys/class/infiniband", root / "proc/driver/nvidia/gpus"
    if not gpus.is_dir() or not adapters.is_dir() or len(list(adapters.iterdir())) < 2:
        return [], ""
    from zerohop.topology import topology

    machine = topology(root / "sys", root / "proc", nvml="not queried: only PCIe counts here")
    if not machine.cuda:
        return [], ""
    if local_rank is None:
        local_rank = launcher_local_rank()
    gpu = f"cuda:{local_rank % len(machine.cuda)}"  # as local_gpu(), without querying the driver
    near = machine.nearest(gpu)
    if not near:
        return [], ""
    distance = machine.label(gpu, near[0].name)
    return [rdma.name for rdma in near], f"it is the adapter nearest to {gpu} ({distance})"

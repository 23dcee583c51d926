"""The devices of an Endpoint that has several, a rail each."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["joined", "nearest_rails"]


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


def nearest_rails(devices: str) -> dict[str, int]:
    """The rail nearest to each GPU that the topology knows, by its name in PyTorch ("cuda:0").

    devices: names with commas in between. Empty where there is but one, or none is in the topology.
    """
    names = [name.strip() for name in devices.split(",")]
    if len(names) < 2:
        return {}
    from zerohop.topology import topology  # costs more than the rest of an Endpoint

    machine = topology()
    nearest = {}
    for ordinal in range(len(machine.cuda)):
        near = machine.nearest(f"cuda:{ordinal}", among=names)
        if near:
            nearest[f"cuda:{ordinal}"] = names.index(near[0].name)
    return nearest

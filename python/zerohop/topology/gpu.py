"""NVIDIA GPUs, in PCI bus order like nvidia-smi, and their CUDA ordinals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zerohop.topology.pci import CONTROLLER_3D, NVIDIA, VGA, PciDevice
from zerohop.topology.tree import Tree


@dataclass(frozen=True)
class Gpu:
    name: str  # "GPU0"
    pci: PciDevice
    model: str | None = None
    uuid: str | None = None

    @property
    def numa(self) -> int:
        return self.pci.numa


def read_gpus(devices: Sequence[PciDevice], proc: Tree) -> list[Gpu]:
    """GPUs of this machine, or of this container: its /proc/driver/nvidia lists only its own."""
    own = proc.names("driver/nvidia/gpus")
    found = [
        device
        for device in devices
        if device.vendor == NVIDIA and device.kind in (VGA, CONTROLLER_3D)
        if not own or device.address in own
    ]
    return [_gpu(f"GPU{index}", device, proc) for index, device in enumerate(found)]


def _gpu(name: str, device: PciDevice, proc: Tree) -> Gpu:
    text = proc.text(f"driver/nvidia/gpus/{device.address}/information") or ""
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    known = {key.strip(): value.strip() for key, value in facts.items()}
    return Gpu(name, device, model=known.get("Model"), uuid=known.get("GPU UUID"))


def cuda_order(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[list[Gpu], str]:
    """The GPUs in the order of cuda:0, cuda:1, ... in this environment, and why it is unknown.

    CUDA counts the fastest GPU first unless CUDA_DEVICE_ORDER=PCI_BUS_ID; equal ones stay in bus
    order. CUDA itself is not queried: a process must not fork after initialising it.
    """
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not by_bus and len({gpu.pci.product for gpu in gpus}) > 1:
        return [], "CUDA orders GPUs of different models by speed: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(gpus), ""
    chosen: list[Gpu] = []
    for word in visible.split(","):
        match = _named(gpus, word.strip())
        if match is None or match in chosen:  # CUDA ignores everything after an invalid entry
            break
        chosen.append(match)
    return chosen, ""


def _named(gpus: Sequence[Gpu], word: str) -> Gpu | None:
    if word.isdecimal():
        return gpus[int(word)] if int(word) < len(gpus) else None
    matches = [gpu for gpu in gpus if word and gpu.uuid is not None and gpu.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None

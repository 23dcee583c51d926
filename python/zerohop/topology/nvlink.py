"""NVLinks between GPUs, through NVML if the package nvidia-ml-py and the driver are installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from zerohop.topology.gpu import Gpu

Links = dict[frozenset[str], int]  # number of NVLinks between a pair of GPUs, by their names


def load_nvml() -> ModuleType | str:
    """The module of NVML's Python binding, or the reason why there is none."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return "NVLinks are unknown: pip install nvidia-ml-py"


def read_nvlinks(gpus: Sequence[Gpu], nvml: ModuleType | str) -> tuple[Links, str]:
    """NVLinks of every pair, and why some are unknown ("" if all are known)."""
    if len(gpus) < 2:
        return {}, ""
    if isinstance(nvml, str):
        return {}, nvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {}, f"NVLinks are unknown: NVML does not start ({error}); load the NVIDIA driver"
    try:
        return _links(gpus, nvml), ""
    except nvml.NVMLError as error:
        return {}, f"NVLinks are unknown: NVML refused ({error})"
    finally:
        nvml.nvmlShutdown()


def _links(gpus: Sequence[Gpu], nvml: Any) -> Links:
    """Links to a GPU are identified by its address. Links to a switch reach every GPU with links to a switch."""
    names = {gpu.pci.address: gpu.name for gpu in gpus}
    direct: Links = {}
    switched: dict[str, int] = {}
    for gpu in gpus:
        for remote in _remotes(nvml.nvmlDeviceGetHandleByPciBusId(gpu.pci.address.encode()), nvml):
            if remote in names:
                pair = frozenset((gpu.name, names[remote]))
                direct[pair] = direct.get(pair, 0) + 1
            else:
                switched[gpu.name] = switched.get(gpu.name, 0) + 1
    links = {pair: count // 2 for pair, count in direct.items()}  # each was seen from both ends
    ordered = [gpu.name for gpu in gpus if gpu.name in switched]
    for index, a in enumerate(ordered):
        for b in ordered[index + 1 :]:
            links.setdefault(frozenset((a, b)), min(switched[a], switched[b]))
    return links


def _remotes(handle: Any, nvml: Any) -> list[str]:
    """For each active NVLink of a GPU, the PCI address at its other end ("" if hidden)."""
    remotes = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            break  # no such link on this model
        try:
            remotes.append(_address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except nvml.NVMLError_NotSupported:  # a virtual machine hides the switches
            remotes.append("")
    return remotes


def _address(bus_id: bytes | str) -> str:
    """NVML's "00000000:3B:00.0" as sysfs writes it: "0000:3b:00.0"."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain or '0', 16):04x}:{rest}"


def read_speed(gpu: Gpu, nvml: Any) -> float:
    """The bandwidth of one NVLink of that GPU each way, in GB/s; 0.0 if NVML does not report it."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return 0.0
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(gpu.pci.address.encode())
        [field] = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
    except nvml.NVMLError:
        return 0.0
    finally:
        nvml.nvmlShutdown()
    known = field.nvmlReturn == nvml.NVML_SUCCESS
    return field.value.uiVal / 1000 if known else 0.0  # MB/s, which fits 32 bits in any type

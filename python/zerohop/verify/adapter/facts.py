"""What a report is about: the device and what it really is, the driver, the kernel, the package."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from zerohop import __version__
from zerohop.verify.adapter.end import split_device

SIMULATED = "simulated"
SOFT = "soft"
KINDS = {"rxe": "Soft-RoCE (rxe)", "siw": "Soft-iWARP (siw)"}


def what_it_is(device: str, root: Path = Path("/")) -> str:
    """In plain words, hardware or not."""
    name, _ = split_device(device)
    if name.startswith(SOFT):
        return "NOT HARDWARE: the software HCA of zerohop (soft0), over TCP"
    folder = root / "sys/class/infiniband" / name
    said = " ".join(_text(folder / file) for file in ("node_desc", "board_id", "hca_type"))
    if SIMULATED in said:
        return "NOT HARDWARE: a simulated mlx5 adapter (tests/mlx5), behind the real libibverbs and libmlx5"
    if not (folder / "device").exists():
        for prefix, kind in KINDS.items():
            if name.startswith(prefix) or _text(folder / "node_desc").startswith(prefix):
                return f"NOT HARDWARE: {kind}, the kernel's RDMA in software"
        return "NOT HARDWARE, as far as is known: it is not on PCI (no device in /sys)"
    ids = [_text(folder / "device" / file) for file in ("vendor", "device")]
    return f"hardware: PCI {':'.join(each.removeprefix('0x') for each in ids)}, {_text(folder / 'hca_type') or 'unknown type'}"


def driver_of(device: str, root: Path = Path("/")) -> str:
    """ "mlx5_core 24.10-1.1.4", "none"."""
    name, _ = split_device(device)
    link = root / "sys/class/infiniband" / name / "device/driver"
    if not link.exists():
        return "none on PCI"
    driver = link.resolve().name
    version = _text(root / "sys/module" / driver / "version")
    return f"{driver} {version or 'of the kernel'}"


def host_facts(device: str, root: Path = Path("/")) -> Mapping[str, str]:
    return {
        "what it is": what_it_is(device, root),
        "device": device,
        "driver": driver_of(device, root),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "zerohop": __version__,
        "host": platform.node(),
        "time": datetime.now(timezone.utc).isoformat(" ", "seconds"),
    }


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

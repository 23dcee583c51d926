"""What the configuration space of a PCIe device says; all of it is shown to root alone."""

from __future__ import annotations

import struct
from pathlib import Path

STATUS, HAS_LIST = 0x06, 0x10  # register, and its bit that says there are capabilities
FIRST = 0x34  # where the first one's offset is
PCI_EXPRESS = 0x10  # capability (PCI Express Base Specification 6.0, 7.5.3)
DEVICE_CONTROL = 8  # in it
EXTENDED = 0x100  # where extended capabilities begin
USUAL = 0x40  # bytes of the header, which everybody may read


def read(root: Path, address: str) -> bytes:
    """All that may be read of a device's configuration space; b"" if nothing."""
    try:
        return (root / f"sys/bus/pci/devices/{address}/config").read_bytes()
    except OSError:
        return b""


def device_control(root: Path, address: str) -> int | None:
    """The PCIe device control register; None when it may not be read, or it is no PCIe device.

    A capability starts with a byte of its id and one of its successor's offset.
    """
    config = read(root, address)
    if len(config) <= USUAL or not config[STATUS] & HAS_LIST:
        return None
    offset, seen = config[FIRST] & 0xFC, set[int]()
    while USUAL <= offset <= min(len(config), EXTENDED) - DEVICE_CONTROL - 2 and offset not in seen:
        seen.add(offset)
        if config[offset] == PCI_EXPRESS:
            return int(struct.unpack_from("<H", config, offset + DEVICE_CONTROL)[0])
        offset = config[offset + 1] & 0xFC
    return None


def extended(root: Path, address: str, capability: int, nbytes: int) -> bytes | None:
    """The first bytes of an extended capability, b"" if it has none; None when that may not be read.

    One starts with a word of its id (16 bits), version (4) and successor (12).
    """
    config = read(root, address)
    if len(config) <= EXTENDED:
        return None
    offset, seen = EXTENDED, set[int]()
    while EXTENDED <= offset <= len(config) - nbytes and offset not in seen:
        seen.add(offset)
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == capability:
            return config[offset : offset + nbytes]
        offset = header >> 20
    return b""

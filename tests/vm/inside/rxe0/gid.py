"""Where an address stands in a device's table of GIDs: other programs want its number."""

import ipaddress
from pathlib import Path

from zerohop import verbs


def gid_index(device: verbs.Device) -> int:
    """The number of the GID that `device` uses."""
    table = Path(f"/sys/class/infiniband/{device.name}/ports/1/gids")
    own = ipaddress.IPv6Address(device.gid)
    [index] = [
        int(entry.name)
        for entry in table.iterdir()
        if ipaddress.IPv6Address(entry.read_text().strip()) == own
        and "v2" in (table.parent / "gid_attrs/types" / entry.name).read_text()
    ]
    return index

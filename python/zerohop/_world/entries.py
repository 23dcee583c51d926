"""The entry of a rank of a World in the store."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from zerohop import _core
from zerohop.errors import ProtocolError

_KINDS = {
    "size": int,
    "run": str,
    "host": str,
    "left": str,
    "pid": int,
    "boot": str,
    "place": str,
    "table": str,
}


def _shown(text: str) -> str:
    return _core.wire_text(text.encode(errors="surrogatepass"))


@cache
def boot_id() -> str:
    """Identifies this host since its boot; containers of one host share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def place_here() -> str:
    """Where this process runs, as far as it copies to other processes: a host, a network (for their sockets), a user."""
    try:
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        network = 0
    return f"{boot_id()}/{network}/{os.geteuid()}"


@dataclass(frozen=True)
class Entry:
    address: bytes  # of its Endpoint; it contains a secret
    size: int  # of its World
    run: str = ""  # the run it belongs to, if the store has several
    host: str = field(default_factory=socket.gethostname)
    left: str = ""  # why it left, if it reported that
    pid: int = field(default_factory=os.getpid)
    boot: str = field(default_factory=boot_id)
    place: str = ""  # ranks of the same one copy from and to each other; "": there is no other
    table: str = ""  # of the algorithms of collectives; "": the default

    @property
    def who(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def of_this_host(self) -> bool:
        return self.boot == boot_id()

    def to_bytes(self) -> bytes:
        values = asdict(self)
        del values["address"]
        return json.dumps(values).encode() + b"\n" + self.address

    @classmethod
    def from_bytes(cls, value: bytes) -> Entry:
        """Raises ProtocolError."""
        head, _, address = value.partition(b"\n")
        try:
            entry = cls(address=address, **json.loads(head))
            if not all(type(getattr(entry, name)) is kind for name, kind in _KINDS.items()):
                raise TypeError
            return replace(entry, host=_shown(entry.host), left=_shown(entry.left))
        except (TypeError, ValueError, RecursionError):
            raise ProtocolError(
                "the store's entry of a rank was not written by this version of zerohop: use "
                "another directory, or the same version on all ranks"
            ) from None

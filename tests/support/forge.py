"""Makes what no honest peer makes: other addresses, other RemoteMemory.

The two formats are written here a second time. Each helper first proves, by making the original again,
that it still knows the format, so that a forged value is bad for the reason the test names.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace

import zerohop as zh

# Of an address: magic, version and length; then id, secret, host, port, device, name; checksum.
ID_AT, ID_BYTES, SECRET_BYTES, CHECKSUM_BYTES = 7, 16, 32, 16


def seal(body: bytes) -> bytes:
    """An address with a correct checksum around any contents."""
    return body + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES).digest()


def _open(address: bytes) -> bytes:
    body = address[:-CHECKSUM_BYTES]
    assert seal(body) == address, "the format of addresses has changed: adapt support.forge"
    return body


def with_other_id(address: bytes) -> bytes:
    """The same address with the last bit of the endpoint's id changed."""
    return _flipped(address, ID_AT + ID_BYTES - 1)


def with_other_secret(address: bytes) -> bytes:
    """The same address with the last bit of its secret changed."""
    return _flipped(address, ID_AT + ID_BYTES + SECRET_BYTES - 1)


def _flipped(address: bytes, place: int) -> bytes:
    body = bytearray(_open(address))
    body[place] ^= 1
    return seal(bytes(body))


def with_other_port(address: bytes, ports: list[int], port: int) -> bytes:
    """The same address, but behind another port; `ports` are those the endpoint listens on."""
    body = _open(address)
    for own in ports:
        packed = struct.pack("<H", own)
        places = [
            i
            for i in range(ID_AT + ID_BYTES + SECRET_BYTES, len(body))
            if body[i : i + 2] == packed
        ]
        if places:
            assert len(places) == 1, "the port's bytes are in the address twice"
            return seal(body[: places[0]] + struct.pack("<H", port) + body[places[0] + 2 :])
    raise AssertionError(f"none of the ports {ports} is in the address")


@dataclass(frozen=True)
class Forged:
    """The fields of an encoded RemoteMemory, to be changed with dataclasses.replace."""

    endpoint: bytes
    rkey: int | None  # None: no device reaches it
    more_rkeys: tuple[int, ...]  # of the second and further rails
    local_key: int  # for processes of the owner's host; 0: none
    staged_key: int  # of GPU memory that its owner copies; 0: none
    access: int  # 1 read, 2 write, 4 no atomics
    begin: int  # the registered range
    end: int
    device: bytes
    address: int
    dtype: bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(memory: zh.RemoteMemory) -> Forged:
        raw = memory.to_bytes()
        endpoint, rails = struct.unpack_from("<16sB", raw, 4)
        rkeys = struct.unpack_from(f"<{rails}I", raw, 21)
        at = 21 + 4 * rails
        local_key, staged_key, access, begin, end, length = struct.unpack_from("<QQBQQI", raw, at)
        at += struct.calcsize("<QQBQQI")
        device = raw[at : at + length]
        address, dtype, ndim = struct.unpack_from("<Q4sB", raw, at + length)
        dims = struct.unpack_from(f"<{2 * ndim}q", raw, at + length + 13)
        forged = Forged(
            endpoint, rkeys[0] if rkeys else None, rkeys[1:], local_key, staged_key, access, begin,
            end, device, address, dtype, dims[:ndim], dims[ndim:],
        )  # fmt: skip
        assert forged.encode(raw[:4]) == raw, "the format of RemoteMemory has changed: adapt Forged"
        return forged

    def encode(self, magic: bytes) -> bytes:
        rkeys = () if self.rkey is None else (self.rkey, *self.more_rkeys)
        head = struct.pack(f"<16sB{len(rkeys)}I", self.endpoint, len(rkeys), *rkeys)
        head += struct.pack(
            "<QQBQQI",
            self.local_key,
            self.staged_key,
            self.access,
            self.begin,
            self.end,
            len(self.device),
        )
        layout = struct.pack("<Q4sB", self.address, self.dtype, len(self.shape))
        dims = struct.pack(f"<{2 * len(self.shape)}q", *self.shape, *self.strides)
        return magic + head + self.device + layout + dims


def forge(memory: zh.RemoteMemory, **changes: object) -> zh.RemoteMemory:
    """`memory` with some fields changed; `moved` shifts address and range together.

    Who makes up an rkey has no key for the owner's host either, nor for what its owner copies.
    """
    fields = Forged.of(memory)
    if "rkey" in changes:
        keys = [name for name in ("local_key", "staged_key") if getattr(fields, name) != 0]
        changes = {**dict.fromkeys(keys, changes["rkey"]), **changes}
        if fields.rkey is None:
            del changes["rkey"]
    if "moved" in changes:
        by = changes.pop("moved")
        assert isinstance(by, int)
        changes |= {k: getattr(fields, k) + by for k in ("address", "begin", "end")}
    raw = replace(fields, **changes).encode(memory.to_bytes()[:4])  # type: ignore[arg-type]
    return zh.RemoteMemory.from_bytes(raw)

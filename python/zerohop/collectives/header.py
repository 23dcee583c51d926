"""What a message says of itself: the call that it belongs to, as the rank that sent it made it."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from zerohop.errors import ProtocolError
from zerohop.history import KINDS, called

__all__ = ["NBYTES", "Label", "Message", "What", "pack", "unpack"]

NBYTES = 64  # of a header
# what, kind, root, number, nbytes, part, bytes behind the header, dtype, digest
_FORM = struct.Struct("<BBxxiQQII24sI4x")
assert _FORM.size == NBYTES


class What(IntEnum):
    DATA = 0  # the block itself, behind the header
    ANNOUNCE = 1  # a block will be written as soon as the other side is READY
    READY = 2  # where to: the bytes of a RemoteMemory, behind the header
    DONE = 3  # it has been written there


class Label(NamedTuple):
    """Of one block. Sender and receiver have equal ones, or have not made the same call."""

    kind: str
    number: (
        int  # of the call: those of a World in order; of send_recv those from one rank to the other
    )
    root: int
    nbytes: int  # of the block that the call names, of which a message may be about a part
    part: int
    dtype: str
    digest: int  # of this call and all before it, as History has it; of send_recv 0

    def __str__(self) -> str:
        return called(self.kind, self.number, self.root, self.nbytes, self.dtype)


class Message(NamedTuple):
    what: What
    label: Label
    payload: bytes


def pack(what: What, label: Label, length: int) -> bytes:
    kind, dtype = KINDS.index(label.kind), label.dtype.encode()
    block = (label.nbytes, label.part, length, dtype)
    return _FORM.pack(what, kind, label.root, label.number, *block, label.digest)


def unpack(cell: memoryview) -> Message:
    """Raises ProtocolError."""
    what, kind, root, number, nbytes, part, length, dtype, digest = _FORM.unpack_from(cell)
    if what > max(What) or kind >= len(KINDS) or length > len(cell) - NBYTES:
        raise ProtocolError("bytes arrived that are no message of a collective")
    text = dtype.rstrip(b"\0").decode("latin-1")
    label = Label(KINDS[kind], number, root, nbytes, part, text, digest)
    return Message(What(what), label, bytes(cell[NBYTES : NBYTES + length]))

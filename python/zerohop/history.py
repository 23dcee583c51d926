"""What a rank has called that all ranks call: collectives and barriers, in memory that the other ranks may read.

Every call has a digest of itself and all before it, which goes along with its messages. Ranks whose digests differ have made
different calls, though perhaps long ago; the records tell which.
"""

from __future__ import annotations

import struct
import threading
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zerohop import _core
from zerohop.errors import Error

if TYPE_CHECKING:
    from zerohop.endpoint import Endpoint

__all__ = ["KINDS", "NO_ROOT", "Called", "History", "called"]

KINDS = ("broadcast", "scatter", "gather", "all_gather", "all_to_all", "send_recv", "barrier")
NO_ROOT = -1
_RECORDS = 64  # of the latest calls
_CALL = struct.Struct("<BxxxiQ24s")  # kind, root, nbytes, dtype: what must be the same everywhere
_FORM = struct.Struct(f"<QQII{_CALL.size}s")  # position, number, digest, checksum of the rest, call
_LOOK = 0.25  # seconds to look another rank's up, and as many to read them
_ANY = 2**64 - 1  # of nbytes: they differ from rank to rank


class Called(NamedTuple):
    """position: among all calls, from 1; number: among the collectives, or the barriers."""

    position: int
    number: int
    digest: int
    kind: str
    root: int
    nbytes: int | None
    dtype: str

    def __str__(self) -> str:
        return called(self.kind, self.number, self.root, self.nbytes, self.dtype)


def called(kind: str, number: int, root: int, nbytes: int | None, dtype: str) -> str:
    """In messages."""
    if kind == "barrier":
        return f"barrier (number {number})"
    where = "" if root == NO_ROOT else f", root {root}"
    size = "" if nbytes is None else f" with {nbytes} bytes"
    return f"{kind} (call {number}{where}){size} of {dtype}"


class History:
    """Of this rank. Any thread."""

    def __init__(self, endpoint: Endpoint, name: str, rank: int, size: int) -> None:
        self._rank, self._name = rank, f"calls of {name!r}"
        self._lock = threading.Lock()  # around the following; never held while waiting
        self._position = self._digest = 0
        self._barriers = 0
        self._latest: dict[int, Called] = {}  # by position
        self._memory: _core.Memory | None = None
        if size > 1:
            self._memory = endpoint.empty(_RECORDS * _FORM.size)
            self._view = memoryview(self._memory)  # type: ignore[arg-type]
            endpoint.share(self._name, self._memory)

    def add(self, kind: str, number: int, root: int, nbytes: int | None, dtype: str) -> Called:
        """number: of the call among collectives. nbytes: None where ranks may differ in it."""
        call = _CALL.pack(
            KINDS.index(kind), root, _ANY if nbytes is None else nbytes, dtype.encode()
        )
        with self._lock:
            self._position += 1
            self._digest = zlib.crc32(call, self._digest)
            made = Called(self._position, number, self._digest, kind, root, nbytes, dtype)
            self._latest[made.position] = made
            self._latest.pop(made.position - _RECORDS, None)
            if self._memory is not None:
                place = made.position % _RECORDS * _FORM.size
                rest = _FORM.pack(made.position, number, made.digest, 0, call)
                record = _FORM.pack(made.position, number, made.digest, zlib.crc32(rest), call)
                self._view[place : place + _FORM.size] = record
        return made

    def add_barrier(self) -> Called:
        self._barriers += 1  # one thread at a time is in the barrier
        return self.add("barrier", self._barriers, NO_ROOT, None, "")

    def difference(self, rank: int, peer: _core.Peer) -> str | None:
        """The first call that rank made otherwise; None: there is none among those that both still have, or no answer."""
        if self._memory is None:
            return None
        theirs = self._read(peer)
        with self._lock:
            ours = dict(self._latest)
        common = sorted(ours.keys() & theirs.keys())
        for position in common:
            mine, its = ours[position], theirs[position]
            if mine.digest != its.digest:
                return self._differ(rank, mine, its)
        return None

    def _differ(self, rank: int, mine: Called, its: Called) -> str:
        text = f"rank {rank} has called {its}, rank {self._rank} {mine}"
        if str(mine) == str(its):
            text += ", after calls that were not the same"
        return f"{text}: all ranks make the same calls in the same order"

    def _read(self, peer: _core.Peer) -> dict[int, Called]:
        found: dict[int, Called] = {}
        with suppress(Error):
            there = peer.lookup(self._name, _LOOK)
            raw = np.empty(min(there.nbytes, _RECORDS * _FORM.size), np.uint8)
            peer.read(there[: raw.nbytes], raw).wait(_LOOK)
            for place in range(0, raw.nbytes - _FORM.size + 1, _FORM.size):
                record = _unpacked(raw[place : place + _FORM.size].tobytes())
                if record is not None:
                    found[record.position] = record
        return found


def _unpacked(record: bytes) -> Called | None:
    """None: there is no call yet, or it is being written."""
    position, number, digest, checksum, call = _FORM.unpack(record)
    rest = _FORM.pack(position, number, digest, 0, call)
    kind, root, nbytes, dtype = _CALL.unpack(call)
    if position == 0 or zlib.crc32(rest) != checksum or kind >= len(KINDS):
        return None
    text = dtype.rstrip(b"\0").decode("latin-1")
    return Called(
        position, number, digest, KINDS[kind], root, None if nbytes == _ANY else nbytes, text
    )

"""The calls of a rank that all ranks must make, collectives and barriers, in memory that the other ranks may read.

Every call has a digest of itself and all earlier ones, which its messages carry. Ranks whose digests differ have made
different calls, perhaps long ago; the records show which.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zerohop import _core
from zerohop.errors import Error

if TYPE_CHECKING:
    from zerohop._world.holdings import Holdings
    from zerohop.endpoint import Endpoint

KINDS: tuple[str, ...] = _core.CallLog.KINDS
BROADCAST, SCATTER, GATHER, ALL_GATHER, ALL_TO_ALL, SEND_RECV = range(6)
REDUCE, ALL_REDUCE, REDUCE_SCATTER, SCAN, _BARRIER = range(6, len(KINDS))
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
NO_ROOT = -1
_BITS = re.compile(r"(?:u?int|b?float|complex)(\d+)")  # of an element, in the name of its dtype
SAME_CALLS = "all ranks must make the same calls in the same order"  # in messages
_NBYTES = 64 * 64  # of the latest calls, as _core.CallLog has them
_LOOK = 0.25  # seconds to look up another rank's records, and the same to read them


class Common(NamedTuple):
    """What all ranks must call alike, besides the kind. nbytes: None if they may differ in it. op: of a reduction, by its place in _core.OPS."""

    root: int
    nbytes: int | None
    dtype: str
    op: int = 0
    factor: float = 1.0


class Called(NamedTuple):
    """position: among all calls, from 1; number: among the collectives, or the barriers."""

    position: int
    number: int
    digest: int
    kind: str
    root: int
    nbytes: int | None
    dtype: str
    op: int = 0

    def __str__(self) -> str:
        return called(self.kind, self.number, self.root, self.nbytes, self.dtype, self.op)


def called(kind: str, number: int, root: int, nbytes: int | None, dtype: str, op: int = 0) -> str:
    """The text for messages."""
    if kind == "barrier":
        return f"barrier (number {number})"
    where = "" if root == NO_ROOT else f", root {root}"
    size = f" of {dtype}" if nbytes is None else f" with {amount(nbytes, dtype)}"
    what = f", {_core.OPS[op]}" if op else ""
    return f"{kind} (call {number}{where}{what}){size}"


def amount(nbytes: int, dtype: str) -> str:
    """The text of a size: "6 elements of int32 (24 bytes)", and for elements of one byte "24 bytes of uint8"."""
    found = _BITS.fullmatch(dtype)
    itemsize = int(found[1]) // 8 if found else 1
    if itemsize == 1 or nbytes % itemsize:
        return f"{nbytes} bytes of {dtype}"
    count = nbytes // itemsize
    return f"{count} element{'' if count == 1 else 's'} of {dtype} ({nbytes} bytes)"


class History:
    """The history of this rank. log: use it with the GIL held, because it is not thread-safe."""

    def __init__(self, endpoint: Endpoint | Holdings, name: str, rank: int, size: int) -> None:
        self._rank, self._name, self._size = rank, f"calls of {name!r}", size
        if size == 1:
            self.log = _core.CallLog(bytearray(_NBYTES))
        else:
            self._memory = endpoint.empty(_NBYTES)
            self.log = _core.CallLog(self._memory)
            endpoint.share(self._name, self._memory)

    def add(self, kind: str, common: Common) -> Called:
        return _called(self.log.add(_NUMBERS[kind], *common))

    def difference(self, rank: int, peer: _core.Peer) -> str | None:
        """The first call in which that rank differs; None: there is none in the records of both, or no answer."""
        if self._size == 1:
            return None
        theirs = self._read(peer)
        ours = {row[0]: _called(row) for row in self.log.rows()}
        for position in sorted(ours.keys() & theirs.keys()):
            mine, its = ours[position], theirs[position]
            if mine.digest != its.digest:
                return self._differ(rank, mine, its)
        return None

    def _differ(self, rank: int, mine: Called, its: Called) -> str:
        text = f"rank {rank} has called {its}, rank {self._rank} {mine}"
        if str(mine) == str(its):
            text += ", after calls that were not the same"
            if _core.OPS[mine.op] == "premul_sum":
                text += ", or with another factor="
        return f"{text}: {SAME_CALLS}"

    def _read(self, peer: _core.Peer) -> dict[int, Called]:
        with suppress(Error):
            there = peer.lookup(self._name, _LOOK)
            raw = np.empty(min(there.nbytes, _NBYTES), np.uint8)
            peer.read(there[: raw.nbytes], raw).wait(_LOOK)
            return {row[0]: _called(row) for row in _core.CallLog.rows_in(raw.tobytes())}
        return {}


def _called(row: tuple[int, int, int, int, int, int | None, str, int]) -> Called:
    position, number, digest, kind, root, nbytes, dtype, op = row
    return Called(position, number, digest, KINDS[kind], root, nbytes, dtype, op)

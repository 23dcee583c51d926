"""Failure reports: why a rank has left, or why a job cannot go on.

They are written into memory of every connected rank, so that they outlive the reporting rank.
"""

from __future__ import annotations

import select
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerohop import _core
from zerohop.errors import Error

if TYPE_CHECKING:
    from zerohop._world.holdings import Holdings
    from zerohop.endpoint import Endpoint

OTHER, LOST, MISMATCH, LEFT, LATE = "", "lost", "mismatch", "left", "late"
_KINDS = (OTHER, LOST, MISMATCH, LEFT, LATE)
_CELL = 1024  # bytes of one report
_MOST_CELLS = 64  # ranks share them; two simultaneous reports in one cell are lost, which the checksum detects
_HEAD = struct.Struct("<IIiI")  # checksum of the rest, kind, reporting rank, bytes of text
_TELL = 0.5  # seconds to report to all of them
_LONGEST = 200  # characters of a description


class Report(NamedTuple):
    kind: str
    rank: int  # the reporting rank
    text: str


class FailureReports:
    """Reports to and from this rank.

    bell: the slot of this rank's board that signals a mismatch; bell_at: that of the rank of a Peer, if not the same.
    Each rank has two cells at every other rank, at an index given by its rank: one for why it left, one for the rest.
    """

    def __init__(
        self,
        endpoint: Endpoint | Holdings,
        name: str,
        rank: int,
        size: int,
        bell: int,
        bell_at: Callable[[_core.Peer], int] | None = None,
    ) -> None:
        self._endpoint, self._rank, self.bell = endpoint, rank, bell
        self._bell_at = bell_at or (lambda _: bell)
        self._cells = min(size, _MOST_CELLS)
        self._name = f"failure reports of {name!r}"
        self._memory: _core.Memory | None = None
        if size > 1:
            self._memory = endpoint.empty(2 * self._cells * _CELL)
            self._view = np.asarray(self._memory)
            endpoint.share(self._name, self._memory)

    def send(self, kind: str, text: str) -> None:
        """Sends it to all ranks that are connected now and answer in time. Never raises."""
        self._tell(Report(kind, self._rank, text))

    def pass_on(self, rank: int) -> None:
        """Passes on that rank's report of why it left, because others may not have been connected to it."""
        for report in self.heard():
            if report.kind == LEFT and report.rank == rank:
                self._tell(report)

    def _tell(self, report: Report) -> None:
        if self._memory is None or self._endpoint.closed:
            return
        end = time.monotonic() + _TELL
        posted = []
        for peer, there in self._memories(end):
            with suppress(Exception):  # it may share anything under that name
                posted.append(self._write(peer, there, report))
        for transfer in posted:
            with suppress(Error):
                transfer.wait(max(0.0, end - time.monotonic()))

    def _memories(self, end: float) -> Iterator[tuple[_core.Peer, _core.RemoteMemory]]:
        """The memories of the connected ranks that answer by `end`; all are asked at once. Other Peers share none."""
        bell = _core.Bell()
        rings = select.poll()
        rings.register(bell.fileno(), select.POLLIN)
        asked = {}
        for token, peer in enumerate(self._endpoint.peers):
            with suppress(Error):  # it is lost by now
                inquiry = _core.ask(peer, self._name, now=True)
                bell.watch(inquiry, token)
                asked[token] = peer, inquiry
        while asked and rings.poll(max(0.0, end - time.monotonic()) * 1e3):
            for token in bell.drain():
                peer, inquiry = asked.pop(token)
                with suppress(Error):
                    there: _core.RemoteMemory | None = _core.outcome(inquiry, 0.0)
                    if there is not None:
                        yield peer, there

    def _write(self, peer: _core.Peer, there: _core.RemoteMemory, report: Report) -> _core.Transfer:
        cell = _packed(report)
        count = there.nbytes // _CELL // 2
        begin = ((report.kind == LEFT) * count + report.rank % count) * _CELL
        note = (self._bell_at(peer), 1) if report.kind == MISMATCH else None
        return peer.write(cell, there[begin : begin + cell.nbytes], notify=note)

    def rung(self) -> bool:
        """Whether a rank has reported a mismatch since the last call."""
        if self._memory is None:
            return False
        try:
            return self._endpoint.reset_notify(self.bell) != 0
        except Error:  # the Endpoint is closed: waits report that themselves
            return False

    def heard(self) -> list[Report]:
        """All reports so far."""
        if self._memory is None:
            return []
        cells = self._view.reshape(-1, _CELL)
        return [report for cell in cells if (report := _unpacked(cell.tobytes())) is not None]

    def why_left(self, rank: int) -> str:
        """The report of that rank when it left; "" if there is none."""
        said = (
            report.text for report in self.heard() if report.kind == LEFT and report.rank == rank
        )
        return next(said, "")


def described(error: BaseException) -> str:
    """The error in one line of bounded length, for reports."""
    try:
        words = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  the program's own error: report only its class
        words = ""
    text = type(error).__name__ + (f": {words}" if words else "")
    text = text.encode(errors="replace").decode()  # a lone surrogate cannot be stored
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _packed(report: Report) -> NDArray[np.uint8]:
    text = report.text.encode(errors="replace")[: _CELL - _HEAD.size]
    rest = _HEAD.pack(0, _KINDS.index(report.kind), report.rank, len(text))[4:] + text
    return np.frombuffer(zlib.crc32(rest).to_bytes(4, "little") + rest, np.uint8)


def _unpacked(cell: bytes) -> Report | None:
    """None: there is no report, an overwritten one, or something else."""
    checksum, kind, rank, length = _HEAD.unpack_from(cell)
    if kind >= len(_KINDS) or length > _CELL - _HEAD.size:
        return None
    if zlib.crc32(cell[4 : _HEAD.size + length]) != checksum:
        return None
    text = _core.wire_text(cell[_HEAD.size : _HEAD.size + length])
    return Report(_KINDS[kind], rank, " ".join(text.split()))

"""The outbox: registered memory from which the messages of all lines go out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from zerohop import _core
from zerohop.collectives.deadline import Deadline
from zerohop.collectives.header import NBYTES
from zerohop.errors import Error

if TYPE_CHECKING:
    from zerohop.roster import Roster

__all__ = ["Outbox"]

_CELLS = 16


class Outbox:
    """cell: bytes of the longest message."""

    def __init__(self, roster: Roster, cell: int) -> None:
        self._roster, self._cell = roster, cell
        self._memory = roster.endpoint.empty(_CELLS * cell)
        self._view = np.asarray(self._memory)
        self._under_way: list[tuple[int, _core.Transfer] | None] = [None] * _CELLS
        self._next = 0

    def write(
        self,
        rank: int,
        peer: _core.Peer,
        there: _core.RemoteMemory,
        header: bytes,
        payload: NDArray[np.uint8],
        note: tuple[int, int],
        deadline: Deadline,
    ) -> _core.Transfer:
        """Copies and posts. Waits for what the cell had before, and raises what ended that."""
        cell, self._next = self._next, (self._next + 1) % _CELLS
        self._finish(cell, deadline)
        begin = cell * self._cell
        end = begin + NBYTES + len(payload)
        self._view[begin : begin + NBYTES] = np.frombuffer(header, np.uint8)
        if len(payload):
            self._view[begin + NBYTES : end] = payload
        local = self._memory[begin:end]
        try:
            posted = peer.write(local, there, notify=note, timeout=deadline.left)
        except Error as error:
            raise self._roster.named(error, rank) from None
        self._under_way[cell] = (rank, posted)
        return posted

    def _finish(self, cell: int, deadline: Deadline) -> None:
        before, self._under_way[cell] = self._under_way[cell], None
        if before is not None:
            rank, posted = before
            try:
                posted.wait(deadline.left)
            except Error as error:
                raise self._roster.named(error, rank) from None

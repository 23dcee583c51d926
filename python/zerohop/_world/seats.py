"""The seat of a rank in a World of some ranks: registered memory in which it and the others note who is there.

Ranks of such a World keep their connections when they leave it. So a rank notes in its own seat that it has left, where others look, and
in the seats of the others that it has come and gone: until all who came have gone, its slots and memory may not serve anything else.
"""

from __future__ import annotations

import select
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.notifications import Slots
from zerohop.errors import Error, PeerLost, ProtocolError, TransferTimeout, VerbsError

if TYPE_CHECKING:
    from zerohop._world.holdings import Holdings
    from zerohop.endpoint import Endpoint

# First slot, number of slots of its collectives, context of its messages, 1 once it has left. A byte for each rank follows.
_HEAD = struct.Struct("<IIII")
_HAS_LEFT = 12  # its offset
_CAME, _GONE = 1, 2  # of a rank that uses the seat
_ONE = np.ones(1, np.uint8)
_SLOTS = 65536  # of a board
_REMOTE_ACCESS = 10  # IBV_WC_REM_ACCESS_ERR, infiniband/verbs.h
_LOOK = 0.5  # seconds to see whether a rank has left


class Seat:
    """This rank's, with the context that others send messages with."""

    def __init__(
        self, endpoint: Endpoint | Holdings, size: int, slots: Slots, context: int
    ) -> None:
        self.context = context
        self.memory = endpoint.empty(_HEAD.size + size)
        self._bytes = np.asarray(self.memory)
        self._bytes[: _HEAD.size] = np.frombuffer(_HEAD.pack(*slots, context, 0), np.uint8)

    def leave(self) -> None:
        self._bytes[_HAS_LEFT] = 1

    def users(self) -> list[int]:
        """The ranks that have come and not gone."""
        return [int(rank) for rank in np.flatnonzero(self._bytes[_HEAD.size :] == _CAME)]


class FarSeat:
    """That of another rank. rank: this one."""

    def __init__(self, peer: _core.Peer, memory: _core.RemoteMemory, rank: int) -> None:
        self._peer, self._memory, self._rank = peer, memory, rank
        self.slots, self.context = Slots(0, 0), 0  # known once this rank has come
        self._gone: _core.Transfer | None = None

    def come(self, lines: int, deadline: Deadline) -> None:
        """lines: as in Slots. Raises PeerLost (the other rank has left), ProtocolError, and the errors of transfers."""
        if self._gone is not None:
            raise PeerLost("it has left")
        self._note(_CAME).wait(deadline.to_connect())  # first: now it stays until this rank is gone
        head = np.empty(_HEAD.size, np.uint8)
        self._peer.read(self._memory[: _HEAD.size], head).wait(deadline.to_connect())
        first, its_lines, context, has_left = _HEAD.unpack(head.tobytes())
        if has_left:
            self.leave()  # now: its memory does not wait for this rank
            raise PeerLost("it has left")
        if its_lines != lines or first + lines + _core.Barrier.SLOTS > _SLOTS:
            raise _not_a_seat(self._peer)
        self.slots, self.context = Slots(first, lines), int(context)

    def has_left(self) -> bool:
        """Whether the other rank has. Raises the errors of a read."""
        note = np.zeros(1, np.uint8)
        self._peer.read(self._memory[_HAS_LEFT : _HAS_LEFT + 1], note).wait(_LOOK)
        return bool(note[0])

    def leave(self) -> None:
        with suppress(Error):  # is_over() sees it
            self._gone = self._note(_GONE)

    def is_over(self, seconds: float) -> bool:
        """Whether the other rank knows that this one is gone, or is lost. Tells it, again if that has failed."""
        if self._gone is None:
            self.leave()
        try:
            if self._gone is not None:
                self._gone.wait(seconds)
                return True
        except TransferTimeout:
            pass  # it is under way
        except Error as error:
            if isinstance(error, VerbsError) and error.code == _REMOTE_ACCESS:
                return True  # the seat is closed: an earlier note arrived, though it seemed to fail
            self._gone = None
        return not self._peer.alive

    def _note(self, value: int) -> _core.Transfer:
        at = _HEAD.size + self._rank
        return self._peer.write(value * _ONE, self._memory[at : at + 1])


class FarSeats:
    """Those that this rank uses. world: its key. size: of that World. lines: as in Slots."""

    def __init__(self, world: str, rank: int, size: int, lines: int) -> None:
        self.name, self._rank, self._nbytes = f"seat in {world!r}", rank, _HEAD.size + size
        self._lines = lines
        self._used: dict[_core.Peer, FarSeat] = {}
        self._over = False  # this rank has left

    def find(self, peer: _core.Peer, deadline: Deadline) -> FarSeat:
        """Waits until the other rank has one. Raises TransferTimeout, PeerLost, ProtocolError."""
        seat = self._used.get(peer)
        if seat is None:  # kept first: a note may arrive though it seems to fail
            seat = self._used.setdefault(peer, self._look_for(peer, deadline))
        if not seat.context:
            try:
                seat.come(self._lines, deadline)
            finally:
                if self._over:  # meanwhile, by another thread
                    seat.leave()
        return seat

    def _look_for(self, peer: _core.Peer, deadline: Deadline) -> FarSeat:
        there = _find_now(peer, self.name, deadline.to_connect())
        if there is None:
            there = peer.lookup(self.name, deadline.left)
        if there.nbytes < self._nbytes:  # that of a World that has left is longer
            raise _not_a_seat(peer)
        return FarSeat(peer, there, self._rank)

    def bell_at(self, peer: _core.Peer) -> int:
        return self.find(peer, Deadline(0.0)).slots.bell

    def leave(self, deadline: Deadline) -> bool:
        """Tells all that this rank is gone. Returns whether all know it by the deadline; call it again until they do."""
        self._over = True
        seats = list(self._used.values())
        for seat in seats:  # tells all before it waits for one
            seat.is_over(0.0)
        return all(seat.is_over(deadline.left) for seat in seats)


def _not_a_seat(peer: _core.Peer) -> ProtocolError:
    return ProtocolError(
        f"{peer.name} does not note its slots as this rank does: use the same version of zerohop on all ranks"
    )


def _find_now(peer: _core.Peer, name: str, seconds: float) -> _core.RemoteMemory | None:
    """The memory that is shared under that name now, or None. Raises PeerLost, TransferTimeout (no answer)."""
    inquiry, bell, rings = _core.ask(peer, name, now=True), _core.Bell(), select.poll()
    bell.watch(inquiry, 0)
    rings.register(bell.fileno(), select.POLLIN)
    if not rings.poll(seconds * 1e3) and not inquiry.done:
        raise TransferTimeout(f"{peer.name} has not answered in {seconds:.1f} s")
    found: _core.RemoteMemory | None = _core.outcome(inquiry, 0.0)
    return found

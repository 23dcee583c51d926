"""Messages between two ranks of a group: groups share Peers, so each has a context of its own (MPI: that of a communicator)."""

from __future__ import annotations

from typing import Any

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop.errors import PeerLost
from zerohop.world import World

GOODBYE = 2**32 - 1  # the tag of the last message of a rank; programs cannot use it


class Messages:
    """Of one World."""

    def __init__(self, world: World) -> None:
        self._ranks = world._membership

    def send(self, rank: int, array: Any, tag: int, seconds: float) -> _core.Transfer:
        """seconds: to connect."""
        peer = self._ranks.peer(rank, Deadline(seconds))
        return _core.send(peer, array, tag, self._ranks.context_at(rank))

    def recv(self, peer: _core.Peer, array: Any, tag: int) -> _core.Transfer:
        return _core.recv(peer, array, tag, self._ranks.context)

    def peer(self, rank: int, seconds: float) -> _core.Peer:
        """For recv(): what that rank has sent is there even if it has left."""
        return self._ranks.bare_peer(rank, Deadline(seconds))

    def with_peer(self) -> list[int]:
        """The ranks for which peer() returns at once."""
        return self._ranks.with_peer()

    def why_lost(self, rank: int) -> PeerLost | None:
        """Why no more messages come from that rank, as far as this one knows."""
        return None if self._ranks.seems_well(rank) else PeerLost(self._ranks.lost(rank))

    def look_at(self, rank: int) -> PeerLost | None:
        """As why_lost(); asks whether that rank has left the group."""
        self._ranks.lives(rank, Deadline(0.0))
        return self.why_lost(rank)

    def look_around(self) -> None:
        """Asks all that have a Peer."""
        for rank in self._ranks.with_peer():
            self._ranks.lives(rank, Deadline(0.0))

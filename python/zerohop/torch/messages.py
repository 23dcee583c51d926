"""Messages between two ranks of a group: groups share Peers, so each has a context of its own (MPI: that of a communicator)."""

from __future__ import annotations

from typing import Any

from zerohop import _core
from zerohop.errors import PeerLost
from zerohop.world import World

GOODBYE = 2**32 - 1  # the tag of the last message of a rank; programs cannot use it


class Messages:
    """Of one World."""

    def __init__(self, world: World) -> None:
        self._ranks = world._membership

    def send(self, peer: _core.Peer, rank: int, array: Any, tag: int) -> _core.Transfer:
        """peer: of that rank."""
        return _core.send(peer, array, tag, self._ranks.context_at(rank))

    def recv(self, peer: _core.Peer, array: Any, tag: int) -> _core.Transfer:
        return _core.recv(peer, array, tag, self._ranks.context)

    def why_lost(self, rank: int) -> PeerLost | None:
        """Why no more messages come from that rank, as far as this one knows."""
        return None if self._ranks.seems_well(rank) else PeerLost(self._ranks.lost(rank))

    def look_at(self, rank: int) -> PeerLost | None:
        """As why_lost(); asks whether that rank has left the group."""
        self._ranks.look_at(rank)
        return self.why_lost(rank)

    def look_around(self) -> None:
        """Asks all."""
        for rank in self._ranks.connected():
            self._ranks.look_at(rank)

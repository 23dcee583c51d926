"""One of two connected processes, as the loops see it."""

from __future__ import annotations

from dataclasses import dataclass

import zerohop as zh
from zerohop.local import Link


@dataclass(frozen=True)
class Side:
    """One of the two workers. Every test moves bytes between the starts of the two arenas."""

    first: bool  # begins the ping-pong, and is the active one elsewhere
    endpoint: zh.Endpoint
    peer: zh.Peer
    arena: zh.Memory
    remote: zh.RemoteMemory

    def inbox(self, nbytes: int) -> slice:
        """Where a write without notification lands: apart from its source, on both sides."""
        half = self.arena.nbytes // 2
        return slice(half, half + nbytes)

    def pairs(self, block: int, count: int) -> list[tuple[zh.Memory, zh.RemoteMemory]]:
        """`count` blocks of `block` bytes, each written to another place than its source."""
        places = [(7 * i + 3) % count for i in range(count)]  # 7 and a power of two: a permutation
        return [
            (
                self.arena[i * block : (i + 1) * block],
                self.remote[place * block : (place + 1) * block],
            )
            for i, place in enumerate(places)
        ]


def join(link: Link, endpoint: zh.Endpoint, arena: zh.Memory) -> Side:
    peer = endpoint.connect(link.exchange(endpoint.address)[1 - link.rank])
    remote = link.exchange(arena.remote)[1 - link.rank]
    return Side(link.rank == 0, endpoint, peer, arena, remote)

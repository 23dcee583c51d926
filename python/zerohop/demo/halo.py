"""Halo exchange between neighbours by one-sided writes, each followed by a notification.

Step s leaves its state in grid s % 2, and each rank then writes its outermost rows straight into the frames
of its neighbours' grid s % 2, notifying slot (side, s % 2) with the value s. Two grids and two slots a side
are enough, and no other credit is needed: a rank writes the halo of step s + 2 only after it has seen its
neighbour's notification of step s + 1, which the neighbour posts after it has taken the notification of
step s and has read, for the last time, the halo that the write will replace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zerohop as zh

FROM_ABOVE, FROM_BELOW = 0, 2  # first of the two slots in which that neighbour announces its halos


@dataclass(frozen=True)
class Neighbour:
    """Where this rank's edge row goes, and where the neighbour's arrives, for even and odd steps."""

    peer: zh.Peer
    edges: tuple[zh.Memory, zh.Memory]
    halos: tuple[zh.RemoteMemory, zh.RemoteMemory]
    slot_there: int
    slot_here: int


class HaloOutOfStep(RuntimeError):
    """A neighbour's notification carries another step than the one that this rank waits for."""


class HaloExchange:
    """`post(step)` sends this rank's edges, `wait(step)` returns when the neighbours' have arrived."""

    def __init__(self, endpoint: zh.Endpoint, neighbours: list[Neighbour]) -> None:
        self._endpoint = endpoint
        self._neighbours = neighbours
        self._posted: list[zh.Transfer] = []

    @property
    def row_nbytes(self) -> int:
        """Bytes sent per step to each neighbour; 0 without neighbours."""
        return self._neighbours[0].edges[0].nbytes if self._neighbours else 0

    def route(self) -> str:
        """How the edges travel, in words; empty without neighbours."""
        if not self._neighbours:
            return ""
        side = self._neighbours[0]
        return str(side.peer.route(side.edges[0], side.halos[0]))

    def post(self, step: int) -> None:
        parity = step % 2
        self._posted = [
            side.peer.write(
                side.edges[parity], side.halos[parity], notify=(side.slot_there + parity, step)
            )
            for side in self._neighbours
        ]

    def wait(self, step: int) -> None:
        for side in self._neighbours:
            value = self._endpoint.wait_notify(side.slot_here + step % 2)
            if value != step:
                raise HaloOutOfStep(f"waited for the halo of step {step}, got that of step {value}")
        for transfer in self._posted:  # the edges may be overwritten from here on
            transfer.wait()


def connect_halos(
    endpoint: zh.Endpoint,
    grids: tuple[zh.Memory, zh.Memory],
    above: zh.Peer | None,
    below: zh.Peer | None,
    name: str = "heat",
) -> HaloExchange:
    """Looks the neighbours' grids up under "<name>/0" and "<name>/1" and pairs edges with halos."""
    neighbours = []
    if above is not None:
        there = [above.lookup(f"{name}/{parity}") for parity in (0, 1)]
        neighbours.append(
            Neighbour(
                peer=above,
                edges=(grids[0][1], grids[1][1]),
                halos=(there[0][-1], there[1][-1]),
                slot_there=FROM_BELOW,
                slot_here=FROM_ABOVE,
            )
        )
    if below is not None:
        there = [below.lookup(f"{name}/{parity}") for parity in (0, 1)]
        neighbours.append(
            Neighbour(
                peer=below,
                edges=(grids[0][-2], grids[1][-2]),
                halos=(there[0][0], there[1][0]),
                slot_there=FROM_ABOVE,
                slot_here=FROM_BELOW,
            )
        )
    return HaloExchange(endpoint, neighbours)

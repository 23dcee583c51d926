"""What the actors do: one keeps addresses, the others are ranks of a World."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from zerohop.world import World

__all__ = ["Board", "Checked", "Member", "RayStore", "content"]

_INBOX = "inbox"
_SLOT = 0
_CALL_S = 60.0  # bound of a call of the board


class Board:
    """An actor: where the members find each other's addresses. These are secrets, as all that is in the job."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self._known[key] = value

    def get(self, key: str) -> bytes | None:
        return self._known.get(key)


class RayStore:
    """The board as a store of a World. board: its handle."""

    def __init__(self, board: Any) -> None:
        self._ray: Any = import_module("ray")
        self._board = board

    def set(self, key: str, value: bytes) -> None:
        self._ray.get(self._board.set.remote(key, bytes(value)), timeout=_CALL_S)

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self._ray.get(self._board.get.remote(key), timeout=_CALL_S)
        return value

    def __repr__(self) -> str:
        return "the board, an actor of Ray"


@dataclass(frozen=True)
class Checked:
    """What a member has found of one round. wrong: numbers."""

    rank: int
    left: int
    route: str
    wrong: int


class Member:
    """An actor: a rank of a World, with an array that its neighbour to the left writes."""

    def __init__(self, board: Any, rank: int, size: int, count: int) -> None:
        self._world = World(RayStore(board), rank, size)
        self._count = count
        self._inbox = self._world.endpoint.empty(count, "int64")
        self._world.endpoint.share(_INBOX, self._inbox)

    def exchange(self, round_: int) -> Checked:
        """Writes to the right, and checks what has come from the left. All members are asked for it at once."""
        world = self._world
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        peer = world.peer(right)
        source = content(world.rank, round_, self._count)
        written = peer.write(source, peer.lookup(_INBOX), notify=(_SLOT, round_ + 1))
        world.endpoint.wait_notify(_SLOT)  # the data is there before
        wrong = np.count_nonzero(np.asarray(self._inbox) != content(left, round_, self._count))
        written.wait()
        return Checked(world.rank, left, str(written.route), int(wrong))

    def close(self) -> None:
        self._world.close()


def content(rank: int, round_: int, count: int) -> npt.NDArray[np.int64]:
    """What that rank writes in a round."""
    return np.arange(count, dtype=np.int64) * (round_ + 1) + 1_000_003 * rank

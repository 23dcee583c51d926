"""This rank's arrays, what it writes from and what the other rank writes to, and what must be in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zerohop.examples.arrays import arrays_of
from zerohop.examples.failures import OutOfStep
from zerohop.examples.osu.plan import Plan

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from zerohop._core import Memory, Transfer
    from zerohop.world import World

__all__ = ["Pair"]

_INBOX = "osu inbox"
_SLOT, _TAG = 0, 0
_LONGEST = 1000  # bytes of what a rank says is wrong


class Pair:
    """Of both ranks; the other one is the Peer. Closed by ``with``."""

    def __init__(self, world: World, plan: Plan, device: str) -> None:
        self.world, self._endpoint = world, world.endpoint
        self._plan, self._arrays = plan, arrays_of(device)
        self._outbox, self._inbox = (self._endpoint.empty(plan.most, device=device) for _ in "oi")
        self._endpoint.share(_INBOX, self._inbox)
        world.barrier()
        self.peer = world.peer(1 - world.rank)
        self._far = self.peer.lookup(_INBOX)
        self.route = str(self.peer.route(self._outbox, self._far))
        self._value = 0  # of the notification that comes next, and of the one that goes next

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._outbox.close()
        self._inbox.close()

    def ends(self, nbytes: int) -> list[tuple[Memory, Any]]:
        """Source and destination of each write of a turn."""
        return [(self._outbox[place], self._far[place]) for place in self._plan.places(nbytes)]

    def next_note(self) -> tuple[int, int]:
        """For the notification of this turn."""
        self._value += 1
        return _SLOT, self._value

    def take(self, note: tuple[int, int]) -> None:
        """Waits for the other rank's of this turn. Raises OutOfStep, TransferTimeout, PeerLost."""
        value = self._endpoint.wait_notify(note[0])
        if value != note[1]:
            raise OutOfStep(f"slot {note[0]}: got turn {value} where {note[1]} is due")

    def acknowledge(self, note: tuple[int, int]) -> Transfer:
        """Notifies the other rank."""
        return self.peer.notify(*note)

    def prepare(self, nbytes: int, turn: int) -> None:
        """Fills what is sent, and what is received with bytes of which each is wrong."""
        view = self._arrays.view
        rank, span = self.world.rank, self._span(nbytes)
        self._arrays.fill(view(self._outbox)[:span], _content(rank, nbytes, turn, span))
        self._arrays.fill(view(self._inbox)[:span], ~_content(1 - rank, nbytes, turn, span))

    def first_wrong(self, nbytes: int, turn: int) -> str:
        """In words, of what this rank has received; empty if it is what was sent."""
        span = self._span(nbytes)
        found = self._arrays.to_host(self._arrays.view(self._inbox)[:span])
        right = _content(1 - self.world.rank, nbytes, turn, span)
        differing = np.flatnonzero(found != right)
        if not len(differing):
            return ""
        first = differing[0]
        return (
            f"of {nbytes} bytes to rank {self.world.rank}, byte {first % nbytes} of write {first // nbytes} is "
            f"{found[first]}, not {right[first]}; {len(differing)} of {span} are wrong"
        )

    def tell(self, wrong: str) -> str:
        """What rank 1 has found goes to rank 0, which returns it."""
        if self.world.rank == 1:
            self.peer.send(np.frombuffer((wrong or " ").encode(), np.uint8), tag=_TAG).wait()
            return ""
        said = np.empty(_LONGEST, np.uint8)
        nbytes = self.peer.recv(said, tag=_TAG).wait()
        return said[:nbytes].tobytes().decode().strip()

    def _span(self, nbytes: int) -> int:
        """Bytes that the writes of a turn cover."""
        return max(int(place.stop) for place in self._plan.places(nbytes))


def _content(rank: int, nbytes: int, turn: int, span: int) -> npt.NDArray[np.uint8]:
    """What that rank sends in a turn."""
    return np.random.default_rng([rank, nbytes, turn]).integers(0, 256, span, np.uint8)

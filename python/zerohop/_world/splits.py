"""The Worlds of some ranks that one World has been split into, on this rank."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from hashlib import sha256

from zerohop import _core
from zerohop._world.membership import Membership, check_name, checked_ranks
from zerohop._world.notifications import SlotRanges, Slots, slots_for
from zerohop._world.seats import Seat
from zerohop._world.some_ranks import SomeRanks

_SHOWN = 8  # most ranks in a name
_REMEMBERED = (
    1000  # most closed Worlds; ranks that come to one of earlier ones wait until their timeout
)
_GRACE = 10.0  # seconds, more than a rank takes from a look-up to its access


class Splits:
    """ranges: of slots. Thread-safe."""

    def __init__(self, ranges: SlotRanges) -> None:
        self._ranges = ranges
        self._contexts = itertools.count(1)  # 0: of messages of the whole World
        self._lock = threading.Lock()  # protects the following
        self._made: Counter[str] = Counter()  # how often each name was used with the same ranks
        self._taken: list[tuple[SomeRanks, range]] = []
        self._remembered: deque[str] = deque()  # names of seats
        self._empty_seat: Seat | None = None
        self._late: deque[tuple[float, list[_core.Memory]]] = deque()  # closed after that time

    def make(self, membership: Membership, ranks: Sequence[int], name: str | None) -> Membership:
        """As World.split(). membership: of all ranks."""
        membership.check_open()
        if name is not None:
            check_name(name)
        ranks = checked_ranks(membership, ranks)
        with self._lock:
            self._sweep()
            if name is None:
                name = f"{membership.name}, ranks {_shown(ranks)}"
            alike = sha256(repr((name, ranks)).encode()).hexdigest()[:32]
            self._made[alike] += 1
            # Ranks that have given different lists do not find each other.
            key = f"split {alike}, {self._made[alike]}"
            taken = self._ranges.take_above(slots_for(len(ranks)))
            place = (Slots.of(taken), next(self._contexts))
            try:
                made = SomeRanks(membership, ranks, (name, key), *place, self.sweep)
            except BaseException:
                self._ranges.give_back(taken)
                raise
            self._taken.append((made, taken))
            return made

    def sweep(self) -> None:
        """Frees what closed Worlds have left, and other ranks do not use any more."""
        with self._lock:
            self._sweep()

    def _remember(self, closed: SomeRanks) -> None:
        """Ranks that come to a closed World find the same seat in all, of one that has left."""
        endpoint = closed.endpoint
        if self._empty_seat is None:
            self._empty_seat = Seat(endpoint, closed.whole_size, Slots(0, 0), 0)
            self._empty_seat.leave()
        endpoint.share(closed.seat_name, self._empty_seat.memory)
        self._remembered.append(closed.seat_name)
        if len(self._remembered) > _REMEMBERED:
            endpoint.unshare(self._remembered.popleft())

    def clear(self) -> None:
        """Once the Endpoint is closed."""
        with self._lock:
            self._taken.clear()
            self._remembered.clear()
            self._empty_seat = None
            self._late.clear()

    def _sweep(self) -> None:
        for made, taken in list(self._taken):
            if made.endpoint.closed:
                return  # it has ended all
            if made.closed and made.is_free():
                self._late.append((time.monotonic() + _GRACE, made.free()))
                self._remember(made)
                self._ranges.give_back(taken)
                self._taken.remove((made, taken))
        while self._late and self._late[0][0] < time.monotonic():
            for memory in self._late.popleft()[1]:
                memory.close()


def _shown(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks))
    if len(ranks) <= _SHOWN:
        return text
    return f"{', '.join(map(str, ranks[:_SHOWN]))}, ... ({sha256(text.encode()).hexdigest()[:16]})"

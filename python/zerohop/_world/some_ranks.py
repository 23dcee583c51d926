"""The Membership of a World of some ranks, made by split(): it uses the Endpoint and the Peers of the whole World."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.entries import Entry
from zerohop._world.failure_reports import LEFT, FailureReports, described
from zerohop._world.history import History
from zerohop._world.holdings import Holdings
from zerohop._world.membership import LAST, Membership, checked_ranks, without_fault
from zerohop._world.notifications import Slots
from zerohop._world.seats import FarSeat, FarSeats, Seat
from zerohop.endpoint import Endpoint
from zerohop.errors import Error, PeerLost, TransferTimeout


class SomeRanks(Membership):
    """whole: of all ranks. ranks: theirs in the whole World, in order. names: its name and its key. slots, context: free on this rank. left: called at the end."""

    def __init__(
        self,
        whole: Membership,
        ranks: Sequence[int],
        names: tuple[str, str],
        slots: Slots,
        context: int,
        left: Callable[[], None],
    ) -> None:
        (name, key), rank, size = names, ranks.index(whole.rank), len(ranks)
        super().__init__(whole.endpoint, name, rank, size, slots, key)
        self._whole, self._ranks = whole, ranks
        self.table, self.ranges = whole.table, whole.ranges
        self.gpu_segments = whole.gpu_segments
        self._has_left, self._left_here = False, left
        self._join: Callable[[float], bool] = lambda _: False  # as for let_go()
        self._gone = False  # the other ranks know that no call here uses theirs any more
        self._holdings = Holdings(whole.endpoint)
        self._far_seats: dict[int, FarSeat] = {}  # of connected ranks
        self._seats = FarSeats(key, rank, size, slots.lines)
        self.empty(slots.all)
        here = (self._holdings, key, rank, size)
        try:
            self.reports = FailureReports(*here, slots.bell, self._seats.bell_at)
            self.history = History(*here)
            self.seat = Seat(self._holdings, size, slots, context)
            self.share(self._seats.name, self.seat.memory)  # last: who finds it finds the rest
        except BaseException:
            self.free()
            raise

    @property
    def place(self) -> str:
        return self._whole.place

    @property
    def seat_name(self) -> str:
        return self._seats.name

    @property
    def whole_size(self) -> int:
        return self._whole.size

    def share(self, name: str, memory: _core.Memory) -> None:
        self._holdings.share(name, memory)

    def slots_at(self, rank: int) -> Slots:
        return self._far_seats[rank].slots

    def callers(self) -> dict[int, _core.Peer]:
        of_whole = self._whole.callers()
        return {
            rank: of_whole[whole] for rank, whole in enumerate(self._ranks) if whole in of_whole
        }

    def whole_rank(self, rank: int) -> int:
        return self._ranks[rank]

    def bare_peer(self, rank: int, deadline: Deadline) -> _core.Peer:
        self.check_open()
        self._check_rank(rank)
        try:
            return self._whole.reach(self._ranks[rank], deadline)
        except (PeerLost, TransferTimeout) as error:
            raise self.named(error, rank) from None

    def with_peer(self) -> list[int]:
        connected = set(self._whole.connected())
        return [rank for rank, number in enumerate(self._ranks) if number in connected]

    @property
    def context(self) -> int:
        return self.seat.context

    def context_at(self, rank: int) -> int:
        return self._far_seats[rank].context

    def entry(self, rank: int, deadline: Deadline) -> Entry:
        try:
            return self._whole.find_entry(self._ranks[rank], deadline)
        except Error as error:
            raise self.named(error, rank) from None

    def split(self, ranks: Sequence[int], name: str | None) -> Membership:
        self.check_open()
        numbers = checked_ranks(self, ranks)
        return self._whole.split([self._ranks[rank] for rank in numbers], name)

    def own_endpoint(self) -> Endpoint:
        return self._whole.own_endpoint()

    def _own_peer(self) -> _core.Peer:
        return self._whole.peer(self._whole.rank, Deadline(0.0))

    @property
    def run(self) -> str | None:
        return self._whole.run

    @property
    def closed(self) -> bool:
        return self._has_left or self.endpoint.closed

    def _dial(self, rank: int, deadline: Deadline) -> _core.Peer:
        peer = self._whole.reach(self._ranks[rank], deadline)
        try:
            self._far_seats[rank] = self._seats.find(peer, deadline)
        except TransferTimeout:
            raise TransferTimeout(
                f"rank {self._ranks[rank]} of the whole World has not called split() for {self.name!r} in time: all of these ranks call it with the same list, in the same order"
            ) from None
        return peer

    def _left(self, rank: int) -> str:
        number = self._ranks[rank]
        return self._whole.reports.why_left(number) or self._whole._left(number)

    def seems_well(self, rank: int) -> bool:
        return super().seems_well(rank) and self._whole.seems_well(self._ranks[rank])

    def look_at(self, rank: int) -> None:
        seat = self._far_seats.get(rank)
        with suppress(Error):  # it may be lost, which its Peer knows
            if seat is not None and rank not in self._unreached and seat.has_left():
                self._unreached[rank] = PeerLost("it has left")

    def say_why(self, error: BaseException | None) -> None:
        if error is not None and not without_fault(error) and self.is_here:
            self.reports.send(LEFT, described(error))

    def close(self, deadline: Deadline) -> None:
        """Leaves. The seat stays until is_free()."""
        if not self.is_here:
            return
        self._has_left = True
        self.history.log.end()  # of the calls that do not come to check_open()
        self.seat.leave()
        for peer in self.endpoint.peers:
            with suppress(Error):
                _core.end_context(peer, self.seat.context)

    def let_go(self, join: Callable[[float], bool], deadline: Deadline) -> None:
        self._join = join
        self._go(Deadline(min(LAST, deadline.left)))
        self._left_here()

    def _go(self, deadline: Deadline) -> None:
        """Tells the other ranks that this one uses nothing of theirs, once that is true."""
        if not self._gone and self._join(deadline.left):
            self._join = lambda _: True  # keeps nothing
            self._gone = self._seats.leave(deadline)

    def is_free(self) -> bool:
        """Whether no other rank uses this one's slots and memory any more, and all know that it does not use theirs."""
        self._go(Deadline(0.0))
        return self._gone and not any(
            self._whole.has_peer_of(self._ranks[rank]) for rank in self.seat.users()
        )

    def free(self) -> list[_core.Memory]:
        """As Holdings.free()."""
        return self._holdings.free()

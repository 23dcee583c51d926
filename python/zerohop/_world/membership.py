"""One rank's view of the ranks of a World: connects to them when they are first needed, and watches them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from zerohop import _core
from zerohop._endpoint.numbers import seconds, whole
from zerohop._world.deadline import Deadline
from zerohop._world.entries import Entry
from zerohop._world.failure_reports import FailureReports
from zerohop._world.gpu_segments import GpuSegments
from zerohop._world.history import History
from zerohop._world.notifications import SlotRanges, Slots
from zerohop.endpoint import Endpoint
from zerohop.errors import Error, PeerLost, TransferTimeout, reworded

LAST = 1.0  # seconds for calls in progress to notice that the World is closed


class Membership:
    """name: of the World. key: different from other Worlds', the same on all ranks. slots: of this rank. table: of its Entry."""

    reports: FailureReports
    history: History
    table: str
    ranges: SlotRanges  # of this rank's board
    gpu_segments: GpuSegments  # of the whole World

    def __init__(
        self, endpoint: Endpoint, name: str, rank: int, size: int, slots: Slots, key: str = ""
    ) -> None:
        self.endpoint, self.name, self.rank, self.size = endpoint, name, rank, size
        self.key, self.slots, self._pid = key or name, slots, os.getpid()
        self._peers: dict[int, _core.Peer] = {}
        # Ranks that were already gone when first needed, and those that have left though their Peers live.
        self._unreached: dict[int, PeerLost] = {}

    # --- different with all ranks and with some ---

    @property
    def place(self) -> str:
        """Of this rank's Entry."""
        raise NotImplementedError

    def share(self, name: str, memory: _core.Memory) -> None:
        raise NotImplementedError

    def slots_at(self, rank: int) -> Slots:
        """Where the same slots are on the board of a connected rank."""
        raise NotImplementedError

    def whole_rank(self, rank: int) -> int:
        """That rank's number in the whole World."""
        return rank

    def callers(self) -> dict[int, _core.Peer]:
        """Other ranks that have connected to this one, by the names of their Endpoints, which prove nothing."""
        raise NotImplementedError

    def bare_peer(self, rank: int, deadline: Deadline) -> _core.Peer:
        """As peer(), also of a rank that has not made this World yet, or has left it: to receive what it sends."""
        return self.peer(rank, deadline)

    def with_peer(self) -> list[int]:
        """Other ranks for which bare_peer() returns at once."""
        return self.connected()

    @property
    def context(self) -> int:
        """Of messages to this rank."""
        raise NotImplementedError

    def context_at(self, rank: int) -> int:
        """Of messages to that rank, which is connected."""
        raise NotImplementedError

    def entry(self, rank: int, deadline: Deadline) -> Entry:
        """Of another rank, of this run. Connects to it only if that cannot be known otherwise. Raises TransferTimeout, Error."""
        raise NotImplementedError

    def find_entry(self, rank: int, deadline: Deadline) -> Entry:
        """The same, of a whole World; its errors do not name the rank."""
        raise NotImplementedError

    def has_peer_of(self, rank: int) -> bool:
        """Of a whole World: whether a Peer of that rank lives, whichever of the two has connected."""
        raise NotImplementedError

    def split(self, ranks: Sequence[int], name: str | None) -> Membership:
        """As World.split()."""
        raise NotImplementedError

    def own_endpoint(self) -> Endpoint:
        """The Endpoint that registers memory for the Peer of the own rank."""
        raise NotImplementedError

    @property
    def run(self) -> str | None:
        """As Addresses.run()."""
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        raise NotImplementedError

    def say_why(self, error: BaseException | None) -> None:
        """Reports to the others why this rank is about to leave. A normal end of the program is not reported."""
        raise NotImplementedError

    def close(self, deadline: Deadline) -> None:
        raise NotImplementedError

    def let_go(self, join: Callable[[float], bool], deadline: Deadline) -> None:
        """The last part of close(). join: waits at most so many seconds for calls in progress, and returns whether all have ended."""
        join(LAST)

    def _dial(self, rank: int, deadline: Deadline) -> _core.Peer:
        raise NotImplementedError

    def _own_peer(self) -> _core.Peer:
        raise NotImplementedError

    def _left(self, rank: int) -> str:
        """Why that rank has left, if it reported that elsewhere than here."""
        return ""

    def look_at(self, rank: int) -> None:
        """Notices if a connected rank has left, though its Peer lives."""

    # --- connections ---

    def peer(self, rank: int, deadline: Deadline) -> _core.Peer:
        """As World.peer()."""
        known = self._peers.get(rank)
        if known is not None:
            return known
        self.check_open()
        self._check_rank(rank)
        if rank == self.rank:
            return self._own_peer()
        try:
            return self.reach(rank, deadline)
        except (PeerLost, TransferTimeout) as error:
            raise self.named(error, rank) from None

    def reach(self, rank: int, deadline: Deadline) -> _core.Peer:
        """As peer(), of another rank, which the errors do not name."""
        known = self._peers.get(rank)
        if known is not None:
            return known
        gone = self._unreached.get(rank)
        if gone is not None:
            raise reworded(gone, str(gone))
        try:
            peer = self._dial(rank, deadline)
        except (Error, OSError) as error:  # OSError: from the store's files
            if self.closed:  # meanwhile, by another thread
                raise self._closed() from None
            if isinstance(error, PeerLost):
                # A copy without a traceback, whose frames would keep this World from being freed.
                self._unreached[rank] = reworded(error, str(error))
            raise
        return self._peers.setdefault(rank, peer)

    def _check_rank(self, rank: int) -> None:
        if not 0 <= whole("rank", rank) < self.size:
            raise IndexError(f"rank {rank} of {self.name!r}: ranks go from 0 to {self.size - 1}")

    def check_open(self) -> None:
        """Raises Error once the World is closed."""
        if self.closed:
            raise self._closed()

    def or_closed(self, error: Error) -> Error:
        """The error of a call; another one if it failed because the World was closed meanwhile."""
        if self.closed and type(error) in (Error, PeerLost):
            return self._closed()
        return error

    def _closed(self) -> Error:
        return Error(f"the World {self.name!r} is closed")

    # --- who is left ---

    def seems_well(self, rank: int) -> bool:
        """False if it is known to be lost. This rank counts as well even if its Peer to itself is closed."""
        if rank == self.rank:
            return True
        peer = self._peers.get(rank)
        return rank not in self._unreached and (peer is None or peer.alive)

    def lost(self, rank: int) -> str:
        """The text for messages, with the reason: from the rank itself, or else from its Peer."""
        left = self._why_left(rank)
        peer = self._peers.get(rank)
        why = (peer.why_lost if peer is not None else None) or self._unreached.get(rank)
        return f"rank {rank} is lost" + (left or (f" ({why})" if why else ""))

    def first_lost(self, ranks: Iterable[int]) -> int:
        """Of several lost ranks the first without a reason: one with a reason may have left because of another."""
        return min(ranks, key=lambda rank: bool(self._why_left(rank)))

    def named(self, error: Error, rank: int, what: str = "") -> Error:
        """The same error, with a message that names the rank and why it left."""
        why = self._why_left(rank) if isinstance(error, PeerLost) else ""
        # The World itself connects its Peers, and only once.
        text = str(error).removesuffix("; connect again")
        if why:  # the peer itself only says that it was closed
            text = text.partition(": it left: ")[0]
        return reworded(error, f"{what}rank {rank}: {text}{why}")

    def _why_left(self, rank: int) -> str:
        """In brackets after a space; "" if it gave no reason."""
        why = self.reports.why_left(rank) or self._left(rank)
        return f" (it left: {why})" if why else ""

    def connected(self) -> list[int]:
        """Other ranks to which there is a Peer, alive or not."""
        return [rank for rank in list(self._peers) if rank != self.rank]

    def lost_ranks(self) -> list[int]:
        return [rank for rank in range(self.size) if not self.seems_well(rank)]

    def lives(self, rank: int, deadline: Deadline) -> bool:
        """False if the rank is lost. Connects to it to find out; by the deadline it may also not have started."""
        with suppress(Error):
            self.peer(rank, deadline)
        self.look_at(rank)
        return self.seems_well(rank)

    def bound(self, timeout: float | None) -> float:
        """In seconds; None is the Endpoint's. Raises ValueError, TypeError."""
        if timeout is None:
            return self.endpoint.timeout
        return seconds(timeout)

    def empty(self, slots: range) -> None:
        """Empties those of this rank's board, for another use, also of what has arrived and is not there yet."""
        for _ in slots:  # a peer that goes on notifying does not hold this rank up
            try:
                self.endpoint.wait_notify_any(slots.start, len(slots), 0.0, True)
            except (TransferTimeout, PeerLost):
                return

    @property
    def is_here(self) -> bool:
        """Whether this process may still act for the rank: it is not closed, and not a forked child."""
        return not self.is_forked and not self.closed

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that made it."""
        return self._pid != os.getpid()


@contextmanager
def left_if_it_fails(membership: Membership) -> Iterator[Membership]:
    """For the rest of a World to be made."""
    try:
        yield membership
    except BaseException:
        at_once = Deadline(0.0)
        membership.close(at_once)
        membership.let_go(lambda _: True, at_once)
        raise


def check_name(name: object) -> None:
    """Of a World. Raises ValueError."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"name must be printable text, not {name!r}")


def checked_ranks(membership: Membership, ranks: Sequence[int]) -> list[int]:
    """For split(). Raises ValueError, TypeError."""
    numbers = [whole("each of ranks", rank) for rank in ranks]
    size, own = membership.size, membership.rank
    if len(set(numbers)) < len(numbers) or not all(0 <= rank < size for rank in numbers):
        raise ValueError(f"ranks must be different ones, from 0 to {size - 1}, not {numbers}")
    if own not in numbers:
        raise ValueError(
            f"rank {own} of {membership.name!r} is not among the ranks {numbers}: only those call split()"
        )
    return numbers


def without_fault(error: BaseException | None) -> bool:
    """Whether that is a normal end of the program."""
    return error is None or (isinstance(error, SystemExit) and not error.code)


def who_has(ranks: Collection[int]) -> str:
    """The text for messages."""
    if len(ranks) == 1:
        return f"rank {next(iter(ranks))} has"
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:8]) + (", ..." if len(ranks) > 8 else "")
    return f"ranks {shown} have"

"""The Membership of a whole World, which owns this rank's Endpoint and knows the addresses of the others."""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from zerohop import _core
from zerohop._world.addresses import Addresses
from zerohop._world.deadline import Deadline, looks
from zerohop._world.entries import Entry, place_here
from zerohop._world.failure_reports import LEFT, FailureReports, described
from zerohop._world.gpu_segments import GpuSegments
from zerohop._world.history import History
from zerohop._world.membership import Membership, without_fault
from zerohop._world.notifications import Landings, SlotRanges, Slots
from zerohop._world.splits import Splits
from zerohop._world.store import Store
from zerohop.endpoint import Endpoint
from zerohop.errors import AuthenticationError, Error, PeerLost, TransferTimeout

_WHO = "rank {} of "  # how the name of its Endpoint begins
_CALLER = re.compile(_WHO.format(r"([0-9]{1,9})"))
_JOIN = 1.0  # least seconds to join the others
_RARELY = 10  # a check that found nobody is repeated after this multiple of its duration


class AllRanks(Membership):
    """name: name of the World; options: keywords of the Endpoint; table: of its Entry."""

    def __init__(
        self,
        store: Store,
        name: str,
        rank: int,
        size: int,
        options: Mapping[str, Any],
        table: str,
    ) -> None:
        self._options, self.table = options, table
        who = f"{_WHO.format(rank)}{name} ({socket.gethostname()}:{os.getpid()})"
        endpoint, slots = Endpoint(name=who, **options), Slots.at_the_end(size)
        super().__init__(endpoint, name, rank, size, slots)
        self._addresses = Addresses(store, name, rank, size, self.place, table)
        self.ranges = SlotRanges(slots.first)
        self.gpu_segments = GpuSegments()
        self._splits = Splits(self.ranges)
        self._met: dict[int, Entry] = {}  # of connected ranks
        self._why: dict[int, str] = {}  # a rank left, from the store; "": unknown
        self._look_again = 0.0  # has_company() does not check before this time.monotonic()
        # Made at the first use, under the lock, while no other rank is waited for.
        self._lock = threading.RLock()
        self._own: Endpoint | None = None  # through which this rank reaches itself
        self._landings: Landings | None = None
        try:
            self.reports = FailureReports(endpoint, name, rank, size, slots.bell)
            self.history = History(endpoint, name, rank, size)
            self._addresses.publish(endpoint.address, max(_JOIN, endpoint.timeout))
        except BaseException:
            self.close(Deadline(endpoint.timeout))
            raise

    @property
    def place(self) -> str:
        return place_here() if self.endpoint.copies else ""

    def share(self, name: str, memory: _core.Memory) -> None:
        self.endpoint.share(name, memory)

    def slots_at(self, rank: int) -> Slots:
        return self.slots

    def callers(self) -> dict[int, _core.Peer]:
        found = {}
        for peer in self.endpoint.peers:
            if known := _CALLER.match(peer.name):
                found[int(known[1])] = peer
        return found

    @property
    def context(self) -> int:
        return 0

    def context_at(self, rank: int) -> int:
        return 0

    def entry(self, rank: int, deadline: Deadline) -> Entry:
        try:
            return self.find_entry(rank, deadline)
        except Error as error:
            raise self.named(error, rank) from None

    def find_entry(self, rank: int, deadline: Deadline) -> Entry:
        self.check_open()
        if rank not in self._met:
            entry, lead = self._addresses.wait(rank, deadline.end)
            if lead.sure:
                return entry
            self.reach(rank, deadline)
        return self._met[rank]

    def split(self, ranks: Sequence[int], name: str | None) -> Membership:
        return self._splits.make(self, ranks, name)

    @property
    def closed(self) -> bool:
        return self.endpoint.closed

    def _dial(self, rank: int, deadline: Deadline) -> _core.Peer:
        for _ in looks(deadline.end):
            self.check_open()
            entry, lead = self._addresses.wait(rank, deadline.end)
            self._why[rank] = entry.left
            why = f"it has left, or its {entry.who} has ended"
            lost = lead.lost
            try:
                if lead.seconds:
                    seconds = min(lead.seconds, deadline.to_connect())
                    peer = self.endpoint.connect(entry.address, seconds)
                    self._addresses.found(rank, entry)
                    self._met[rank] = entry
                    return peer
            except (
                PeerLost,
                AuthenticationError,
            ) as error:  # nobody is there, or another process by now
                why = str(error)
                # It is there, and may still close a Peer.
                lost = lost and error.code != errno.EUSERS
            except TransferTimeout as error:
                why, lost = str(error), False
            if lost:
                raise PeerLost(why)
        raise TransferTimeout(f"it was not at its address in time: {why}")

    def _left(self, rank: int) -> str:
        return self._why.get(rank, "")

    def _own_peer(self) -> _core.Peer:
        """An Endpoint cannot connect to itself, so a second one does."""
        with self._lock:
            if self._own is None:
                options = {**self._options, "device": self.endpoint.device}
                own = Endpoint(name=f"{self.endpoint.name}, to itself", **options)
                try:
                    self._peers[self.rank] = own.connect(self.endpoint.address)
                except BaseException:
                    own.close()
                    raise
                self._own = own
            return self._peers[self.rank]

    def own_endpoint(self) -> Endpoint:
        self._own_peer()
        assert self._own is not None
        return self._own

    def has_company(self, deadline: Deadline) -> bool:
        """Whether another rank is left that could notify this one; connects to one if there is no Peer yet."""
        others = [rank for rank in range(self.size) if rank != self.rank and self.seems_well(rank)]
        begin = time.monotonic()
        if begin < self._look_again or any(rank in self._peers for rank in others):
            return True
        short = deadline.by_the_way()  # one deadline for all of them
        alive = next((rank for rank in others if self.lives(rank, short)), None)
        if alive is not None and alive not in self._peers:  # it has not started, or does not answer
            self._own_peer()  # an Endpoint without Peers would not wait
            self._look_again = time.monotonic() + _RARELY * (time.monotonic() - begin)
        return alive is not None or self.size == 1

    def has_peer_of(self, rank: int) -> bool:
        begin = _WHO.format(rank)
        return any(peer.alive and peer.name.startswith(begin) for peer in self.endpoint.peers)

    def find_note(
        self, first: int, count: int, seconds: float, *, reset: bool
    ) -> tuple[int, int] | None:
        """The first of `count` slots with a value, and the value; None: timeout, or no Peer is left to notify."""
        with suppress(TransferTimeout, PeerLost):
            return self.endpoint.wait_notify_any(first, count, max(0.0, seconds), reset)
        return None

    def notify_after(self, transfer: _core.Transfer, slot: int, value: int) -> None:
        """Puts a value into a slot of this rank's own board when the transfer has succeeded."""
        with self._lock:
            if self._landings is None:
                self._landings = Landings(self.endpoint.notify)
            self._landings.notify(transfer, slot, value)

    @property
    def run(self) -> str | None:
        return self._addresses.run

    def say_why(self, error: BaseException | None) -> None:
        if error is not None and not without_fault(error) and self.is_here:
            why = described(error)
            self.reports.send(LEFT, why)
            self._addresses.say(why)

    def close(self, deadline: Deadline) -> None:
        with self._lock:
            landings, self._landings = self._landings, None
        if landings is not None:
            landings.close()
        try:
            if self._own is not None:
                self._own.close(deadline.left)
            self.endpoint.close(deadline.left)
        finally:
            self._splits.clear()
            self._addresses.leave()  # after this the rank may join the next run


def whole_world(membership: Membership) -> AllRanks:
    """That one, of all ranks. Raises ValueError: it is of some ranks only, which have no segments."""
    if isinstance(membership, AllRanks):
        return membership
    raise ValueError(
        f"{membership.name!r} is a World of some ranks, which has no segments: make them in the World that was split"
    )

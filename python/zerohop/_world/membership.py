"""One rank's view of a World: connects to other ranks when they are first needed, and watches them."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from zerohop import _core
from zerohop._endpoint.numbers import seconds, whole
from zerohop._world.addresses import Addresses
from zerohop._world.deadline import Deadline, looks
from zerohop._world.entries import Entry, place_of
from zerohop._world.failure_reports import LEFT, FailureReports, described
from zerohop._world.history import History
from zerohop._world.notifications import BELL, Landings
from zerohop._world.store import Store
from zerohop.endpoint import Endpoint
from zerohop.errors import AuthenticationError, Error, PeerLost, TransferTimeout, reworded

_JOIN = 1.0  # least seconds to join the others
_RARELY = 10  # a check that found nobody is repeated after this multiple of its duration


class Membership:
    """Owns the Endpoint of this rank. name: name of the World; options: keywords of the Endpoint; table: of its Entry."""

    def __init__(
        self,
        store: Store,
        name: str,
        rank: int,
        size: int,
        options: Mapping[str, Any],
        table: str = "",
    ) -> None:
        self.name, self.rank, self.size, self.table = name, rank, size, table
        self._options, self._pid = options, os.getpid()
        who = f"rank {rank} of {name} ({socket.gethostname()}:{os.getpid()})"
        self.endpoint = Endpoint(name=who, **options)
        self.place = place_of(rank) if self.endpoint.copies else ""
        self._addresses = Addresses(store, name, rank, size, self.place, table)
        self._peers: dict[int, _core.Peer] = {}
        # Ranks that were already gone when first needed.
        self._unreached: dict[int, PeerLost] = {}
        self._left: dict[int, str] = {}  # why, from the store; "": unknown
        self._look_again = 0.0  # has_company() does not check before this time.monotonic()
        # Made at the first use, under the lock, while no other rank is waited for.
        self._lock = threading.RLock()
        self._own: Endpoint | None = None  # through which this rank reaches itself
        self._landings: Landings | None = None
        try:
            self.reports = FailureReports(self.endpoint, name, rank, size, BELL)
            self.history = History(self.endpoint, name, rank, size)
            self._addresses.publish(self.endpoint.address, max(_JOIN, self.endpoint.timeout))
        except BaseException:
            self.close(None)
            raise

    def peer(self, rank: int, deadline: Deadline) -> _core.Peer:
        """As World.peer()."""
        known = self._peers.get(rank)
        if known is not None:
            return known
        self.check_open()
        if not 0 <= whole("rank", rank) < self.size:
            raise IndexError(f"rank {rank} of {self.name!r}: ranks go from 0 to {self.size - 1}")
        if rank == self.rank:
            return self._own_peer()
        if rank in self._unreached:
            raise self.named(self._unreached[rank], rank)
        try:
            peer = self._dial(rank, deadline)
        except (Error, OSError) as error:  # OSError: from the store's files
            if self.endpoint.closed:  # meanwhile, by another thread
                raise self._closed() from None
            if not isinstance(error, (PeerLost, TransferTimeout)):
                raise
            if isinstance(error, PeerLost):
                self._unreached[rank] = error
            raise self.named(error, rank) from None
        return self._peers.setdefault(rank, peer)

    def _dial(self, rank: int, deadline: Deadline) -> _core.Peer:
        for _ in looks(deadline.end):
            self.check_open()
            entry, lead = self._addresses.wait(rank, deadline.end)
            self._left[rank] = entry.left
            why = f"its {entry.who} has ended"
            lost = lead.lost
            try:
                if lead.seconds:
                    seconds = min(lead.seconds, deadline.to_connect())
                    peer = self.endpoint.connect(entry.address, seconds)
                    self._addresses.found(rank, entry)
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

    def entry(self, rank: int, deadline: Deadline) -> Entry:
        """Of another rank, in the store. Raises TransferTimeout, Error."""
        self.check_open()
        try:
            return self._addresses.wait(rank, deadline.end)[0]
        except (Error, OSError) as error:
            raise self.named(error, rank) if isinstance(error, Error) else error from None

    def check_open(self) -> None:
        """Raises Error once the World is closed."""
        if self.endpoint.closed:
            raise self._closed()

    def or_closed(self, error: Error) -> Error:
        """The error of a call; another one if it failed because the World was closed meanwhile."""
        if self.endpoint.closed and type(error) in (Error, PeerLost):
            return self._closed()
        return error

    def _closed(self) -> Error:
        return Error(f"the World {self.name!r} is closed")

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
        """The Endpoint that registers memory for the Peer of the own rank."""
        self._own_peer()
        assert self._own is not None
        return self._own

    def seems_well(self, rank: int) -> bool:
        """False if it is known to be lost. This rank counts as well even if its Peer to itself is closed."""
        if rank == self.rank:
            return True
        peer = self._peers.get(rank)
        return peer.alive if peer is not None else rank not in self._unreached

    def lost(self, rank: int) -> str:
        """The text for messages, with the reason: from the rank itself, or else from its Peer."""
        left = self._why_left(rank)
        peer = self._peers.get(rank)
        why = peer.why_lost if peer is not None else self._unreached.get(rank)
        return f"rank {rank} is lost" + (left or (f" ({why})" if why else ""))

    def first_lost(self, ranks: Iterable[int]) -> int:
        """Of several lost ranks the first without a reason: one with a reason may have left because of another."""
        return min(ranks, key=lambda rank: bool(self._why_left(rank)))

    def named(self, error: Error, rank: int, what: str = "") -> Error:
        """The same error, with a message that names the rank and why it left."""
        why = self._why_left(rank) if isinstance(error, PeerLost) else ""
        # The World itself connects its Peers, and only once.
        text = str(error).removesuffix("; connect again")
        return reworded(error, f"{what}rank {rank}: {text}{why}")

    def _why_left(self, rank: int) -> str:
        """In brackets after a space; "" if it gave no reason."""
        why = self.reports.why_left(rank) or self._left.get(rank)
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
        return self.seems_well(rank)

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

    def bound(self, timeout: float | None) -> float:
        """In seconds; None is the Endpoint's. Raises ValueError, TypeError."""
        if timeout is None:
            return self.endpoint.timeout
        return seconds(timeout)

    @property
    def run(self) -> str | None:
        """As Addresses.run()."""
        return self._addresses.run

    @property
    def is_here(self) -> bool:
        """Whether this process may still act for the rank: it is not closed, and not a forked child."""
        return self._pid == os.getpid() and not self.endpoint.closed

    def say_why(self, error: BaseException | None) -> None:
        """Reports to the others why this rank is about to leave. A normal end of the program is not reported."""
        without_fault = error is None or (isinstance(error, SystemExit) and not error.code)
        if error is not None and not without_fault and self.is_here:
            why = described(error)
            self.reports.send(LEFT, why)
            self._addresses.say(why)

    def close(self, timeout: float | None) -> None:
        if self._pid != os.getpid():
            return  # in a child: they are the parent's, and a thread of the parent may hold the lock
        with self._lock:
            landings, self._landings = self._landings, None
        if landings is not None:
            landings.close()
        deadline = Deadline(self.bound(timeout))
        try:
            if self._own is not None:
                self._own.close(deadline.left)
            self.endpoint.close(deadline.left)
        finally:
            self._addresses.leave()  # after this the rank may join the next run


def who_has(ranks: Collection[int]) -> str:
    """The text for messages."""
    if len(ranks) == 1:
        return f"rank {next(iter(ranks))} has"
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:8]) + (", ..." if len(ranks) > 8 else "")
    return f"ranks {shown} have"

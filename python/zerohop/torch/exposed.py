"""The memory of a window on all ranks of a World, and its signals: the parts and notifications of a Segment, also in a World of some ranks.

The ranks exchange where their notification slots are, because those of a World of some ranks differ from rank to rank.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.far_parts import FarPart
from zerohop._world.parts import OwnPart
from zerohop._world.queues import Queue
from zerohop.errors import Error, PeerLost, TransferTimeout
from zerohop.world import World

_ABOUT = struct.Struct("<I28s")  # of a rank: its first slot, the dtype of its tensor
_WRAP = 2**32 - 1  # values of a notification, which count signals; 0 is an empty slot


class Exposed:
    """array: this rank's. One slot of each rank for the signals of each other one, with their number so far. Thread-safe."""

    def __init__(self, world: World, name: str, array: Any, dtype: str, seconds: float) -> None:
        self._world, self._name, self.rank = world, name, world.rank
        self._membership, self._endpoint = world._membership, world.endpoint
        self._key = f"{name}, {self._membership.key}"
        self._queue = Queue(name, self._membership.named)
        self._lock = threading.Lock()  # protects the following
        self._far: dict[int, FarPart] = {}
        self._sent: Counter[int] = Counter()  # signals, by rank
        self._came: Counter[int] = Counter()
        self._asked: Counter[int] = Counter()
        self._own = OwnPart(self._endpoint, array, None, "")
        self._slots = self._membership.ranges.take_above(world.size)
        try:
            for slot in self._slots:  # late signals for what had them before
                self._endpoint.reset_notify(slot)
            self._endpoint.share(self._key, self._own.bytes)
            about = np.frombuffer(_ABOUT.pack(self._slots.start, dtype.encode()), np.uint8)
            everybody = np.empty((world.size, _ABOUT.size), np.uint8)
            world.all_gather(everybody, about, timeout=seconds)
        except BaseException:
            self.close()
            raise
        found = [_ABOUT.unpack(each.tobytes()) for each in everybody]
        self._first = [first for first, _ in found]
        self._dtypes = [text.rstrip(b"\0").decode() for _, text in found]

    def put(self, rank: int, array: Any, dtype: str, offset: int, seconds: float) -> _core.Transfer:
        """offset: in bytes. Raises IndexError, ValueError, PeerLost, TransferTimeout."""
        far = self._reach(rank, seconds)
        if dtype != self._dtypes[rank]:
            raise ValueError(
                f"the tensor there is of {self._dtypes[rank]}, and this one of {dtype}"
            )
        here, there = far.ends(array, offset)
        return self._post(far, seconds, lambda: far.peer.write(here, there))

    def signal(self, rank: int, seconds: float) -> _core.Transfer:
        far = self._reach(rank, seconds)
        slot = self._first[rank] + self.rank
        with self._lock:  # in the order of the numbers
            value = self._sent[rank] % _WRAP + 1
            transfer = self._post(far, seconds, lambda: far.peer.notify(slot, value))
            self._sent[rank] += 1
            return transfer

    def take_ticket(self, rank: int, seconds: float) -> int:
        """The number of the next signal of that rank that nobody has asked for."""
        self._reach(rank, seconds)
        with self._lock:
            self._asked[rank] += 1
            return self._asked[rank]

    def give_back(self, rank: int, ticket: int) -> None:
        """The last one, of a wait that failed."""
        with self._lock:
            if self._asked[rank] == ticket:
                self._asked[rank] -= 1

    def has_seen(self, rank: int, number: int) -> bool:
        """Whether so many signals of that rank are known to have come."""
        return self._came[rank] >= number

    def arrived(self, rank: int, number: int, seconds: float) -> bool:
        """Whether so many signals of that rank have come; waits so long for a new one."""
        if self.has_seen(rank, number):
            return True
        found = None
        with suppress(TransferTimeout, PeerLost):
            found = self._endpoint.wait_notify_any(self._slots.start + rank, 1, seconds, True)
        with self._lock:
            more = 0 if found is None else (found[1] - self._came[rank]) % _WRAP
            if more < _WRAP // 2:  # else another thread has taken a later one
                self._came[rank] += more
            return self._came[rank] >= number

    def end(self, seconds: float) -> None:
        """All ranks call it: their puts and signals are complete, then nobody uses the slots any more."""
        try:
            self._queue.wait(seconds)
            self._world.barrier(seconds)
        except BaseException:
            self.close()  # and keep the slots: a rank may still signal
            raise
        self.close()
        self._membership.ranges.give_back(self._slots)

    def close(self) -> None:
        if not self._endpoint.closed:  # closing it has ended all sharing
            self._endpoint.unshare(self._key)
        for far in self._far.values():
            far.close()
        self._own.close()

    def _reach(self, rank: int, seconds: float) -> FarPart:
        known = self._far.get(rank)
        if known is not None:
            return known
        deadline = Deadline(seconds)
        peer = self._membership.peer(rank, deadline)
        own = self._own
        if rank == self.rank:
            memory = own.bytes.remote
            source = own.registered_with(self._membership.own_endpoint())
        else:
            memory, source = self._look_up(peer, rank, deadline), own.bytes
        made = FarPart(rank, self._name, peer, memory, own, source, lambda: None, self._membership)
        with self._lock:
            return self._far.setdefault(rank, made)

    def _look_up(self, peer: _core.Peer, rank: int, deadline: Deadline) -> _core.RemoteMemory:
        try:
            return peer.lookup(self._key, deadline.to_connect())
        except Error as error:
            raise self._membership.named(error, rank) from None

    def _post(
        self, far: FarPart, seconds: float, begin: Callable[[], _core.Transfer]
    ) -> _core.Transfer:
        self._queue.make_room(seconds)
        transfer = far.named_call(begin)
        self._queue.add(far.rank, transfer)
        return transfer

"""The parts of a Segment on other ranks, looked up when one is first needed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._world.deadline import Deadline
from zerohop._world.parts import OwnPart, Span
from zerohop.errors import Error, RouteUnavailable, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.all_ranks import AllRanks
    from zerohop._world.membership import Membership

_WORD = 8  # bytes that an atomic changes
_T = TypeVar("_T")


class FarPart:
    """One rank's part and the Peer that leads there.

    own: this rank's part; source: the same, registered with the Endpoint of the Peer.
    """

    def __init__(
        self,
        rank: int,
        what: str,
        peer: _core.Peer,
        memory: _core.RemoteMemory,
        own: OwnPart,
        source: _core.Memory,
        find_words: Callable[[], _core.RemoteMemory | None],
        membership: Membership,
    ) -> None:
        self._membership = membership
        self.rank, self.peer, self.memory = rank, peer, memory
        self._what, self._own, self._source = what, own, source
        self._nbytes = memory.nbytes
        self._words: _core.RemoteMemory | None = None
        self._find_words = find_words  # called at the first atomic

    def device_queue(self, hears: str, way: str) -> _core.DeviceQueue:
        """A queue from this rank's whole part to that rank's, for kernels."""
        return self.peer.device_queue(self._source, self.memory, hears=hears, way=way)

    def ends(
        self, local: Any, remote: int, nbytes: int | None = None
    ) -> tuple[Any, _core.RemoteMemory]:
        """The local and the remote bytes of a transfer. Raises IndexError, TypeError, ValueError."""
        remote = whole("remote", remote)
        nbytes = None if nbytes is None else whole("nbytes", nbytes)
        if isinstance(local, (bool, float)):
            raise TypeError(
                f"local must be an offset into the own part (an int, in bytes) or an array, not {local!r}"
            )
        if type(local) is int or (hasattr(local, "__index__") and not hasattr(local, "__dlpack__")):
            if nbytes is None:
                raise TypeError("an offset into the own part needs nbytes")
            self._check("this rank", local, nbytes, self._own.nbytes)
            here = self._source[local : local + nbytes]
        else:
            here, nbytes = self._array(local, nbytes)
        self._check(f"rank {self.rank}", remote, nbytes, self._nbytes)
        return here, self.memory[remote : remote + nbytes]

    def all_ends(self, moves: Iterable[tuple[Any, ...]]) -> list[tuple[Any, _core.RemoteMemory]]:
        """The ends of every move in a list; errors name the wrong one."""
        found = []
        for number, move in enumerate(moves):
            if not isinstance(move, (tuple, list)) or not 2 <= len(move) <= 3:
                length = f" of {len(move)}" if isinstance(move, (tuple, list)) else ""
                raise TypeError(
                    f"move {number} must be (local, remote, nbytes), or for an array (local, remote), not "
                    f"a {type(move).__name__}{length}"
                )
            try:
                found.append(self.ends(*move))
            except (IndexError, TypeError, ValueError) as error:
                raise type(error)(f"move {number}: {error}") from None
        return found

    def _array(self, array: Any, nbytes: int | None) -> tuple[Any, int]:
        span = Span(array)
        if nbytes is None:
            nbytes = span.nbytes
        if not 0 <= nbytes <= span.nbytes:
            raise IndexError(f"{self._what}: {nbytes} bytes of an array that has {span.nbytes}")
        offset = self._own.offset(span)
        if offset is not None:
            return self._source[offset : offset + nbytes], nbytes
        # The own rank's Peer belongs to another Endpoint, which needs its own registration.
        registered = span.registered if self._source is self._own.bytes else None
        return (span.bytes() if registered is None else registered)[:nbytes], nbytes

    def _check(self, whose: str, begin: int, nbytes: int, size: int) -> None:
        if nbytes < 0:
            raise ValueError(f"nbytes must be at least 0, not {nbytes}")
        if not 0 <= begin <= size - nbytes:
            raise IndexError(
                f"{self._what}: {nbytes} bytes from offset {begin} are not within the {size} of {whose}"
            )

    def word(self, offset: int) -> _core.RemoteMemory:
        """The 8 bytes at an offset as one element for atomics."""
        offset = whole("offset", offset)
        self._check(f"rank {self.rank}", offset, _WORD, self._nbytes)
        if offset % _WORD:
            raise ValueError(
                f"an atomic needs an offset that is a multiple of {_WORD}, not {offset}"
            )
        if self._words is None:
            self._words = self._find_words()
        if self._words is None:
            raise RouteUnavailable(
                f"{self._what}: the part of rank {self.rank} cannot serve atomics: it is not in host memory or "
                "does not begin at a multiple of 8 bytes; keep counters in a host segment that is made with a size"
            )
        return self._words[offset // _WORD]

    def named_call(self, call: Callable[[], _T]) -> _T:
        """Calls it; its errors name this rank and the segment."""
        try:
            return call()
        except Error as error:
            raise self._membership.named(error, self.rank, f"{self._what}, ") from None

    def close(self) -> None:
        if self._source is not self._own.bytes:
            self._source.close()


class Parts:
    """what: the segment's name in messages. Shares the own part, under the same name on all ranks."""

    def __init__(self, membership: AllRanks, own: OwnPart, what: str, slots: range) -> None:
        self._membership, self._own, self._what, self._slots = membership, own, what, slots
        self._known: dict[int, FarPart] = {}
        # The name includes the slots, so ranks that disagree on them do not find each other.
        self._name = f"{what}, slots {slots.start} to {slots.stop - 1}"
        self._words = f"{self._name}, words"
        if own.words is not None:
            membership.endpoint.share(self._words, own.words)
        membership.endpoint.share(
            self._name, own.bytes
        )  # shared last: a rank that finds it also finds the words

    def reach(self, rank: int, deadline: Deadline | None = None) -> FarPart:
        """deadline: for the first use; default: the Endpoint's timeout. Raises IndexError, TransferTimeout, PeerLost."""
        known = self._known.get(rank)
        if known is None:
            deadline = deadline or Deadline(self._membership.endpoint.timeout)
            found = self._reach_own if rank == self._membership.rank else self._reach_other
            known = found(rank, deadline)
            known = self._known.setdefault(known.rank, known)
        return known

    def find(self, rank: int, deadline: Deadline) -> FarPart | None:
        """As reach(), of another rank; None: it has not made its part yet."""
        if rank not in self._known and self._name not in self._membership.peer(rank, deadline):
            return None
        return self.reach(rank, deadline)

    def _reach_own(self, rank: int, deadline: Deadline) -> FarPart:
        own, peer = self._own, self._membership.peer(rank, deadline)
        source = own.registered_with(self._membership.own_endpoint())
        words = None if own.words is None else own.words.remote
        return FarPart(
            rank, self._what, peer, own.bytes.remote, own, source, lambda: words, self._membership
        )

    def _reach_other(self, rank: int, deadline: Deadline) -> FarPart:
        peer = self._membership.peer(rank, deadline)
        rank, own = operator.index(rank), self._own
        try:
            memory = peer.lookup(self._name, deadline.to_connect())
        except TransferTimeout:
            raise TransferTimeout(
                f"{self._what}: rank {rank} has not made it in time, with notifications in slots "
                f"{self._slots.start} to {self._slots.stop - 1}: all ranks make the same segments, in the same "
                "order, with the same number of notifications"
            ) from None
        except Error as error:
            raise self._membership.named(error, rank, f"{self._what}, ") from None
        return FarPart(
            rank,
            self._what,
            peer,
            memory,
            own,
            own.bytes,
            lambda: self._look_for_words(rank, peer),
            self._membership,
        )

    def _look_for_words(self, rank: int, peer: _core.Peer) -> _core.RemoteMemory | None:
        try:
            return peer[self._words]
        except KeyError:
            return None
        except Error as error:
            raise self._membership.named(error, rank, f"{self._what}, ") from None

    def close(self) -> None:
        """Stops sharing the own part and ends its registration."""
        if not self._membership.endpoint.closed:  # closing it has ended all sharing
            self._membership.endpoint.unshare(self._name)
            if self._own.words is not None:
                self._membership.endpoint.unshare(self._words)
        for far in self._known.values():
            far.close()
        self._own.close()

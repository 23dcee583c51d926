"""A Segment: memory of every rank of a World that every rank reads and writes by offsets, and notifications."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._world.deadline import Deadline
from zerohop._world.far_parts import FarPart, Parts
from zerohop._world.notes import Notes
from zerohop._world.parts import OwnPart
from zerohop._world.queues import MOST_QUEUES, Queue

if TYPE_CHECKING:
    from typing_extensions import Self

    from zerohop._world.all_ranks import AllRanks
    from zerohop._world.notifications import SlotRanges

__all__ = ["Segment"]

_LEAST, _MOST = -(2**63), 2**64 - 1


class Segment:
    """Made by ``World.segment``; the names follow GASPI (GASPI: Global Address Space Programming Interface, 17.1).

    Offsets and sizes are bytes. Calls with ``local`` and ``nbytes`` take an offset into the own part and a
    size, or a contiguous array or Memory, of which the first nbytes (default: all) are moved; slices of
    ``segment.local`` are fastest. Any other array is registered for the call.
    A rank may name itself.

    Operations run in a queue and return a Transfer at once; ``wait(queue)`` completes them. Only then may the source
    change, and only then is the data of a read there. If a queue is full, the next call waits for the oldest operation. All
    writes to one rank arrive before a notification that was called later, whichever queue they are in.

    Timeouts are seconds. None, where GASPI would block, is the Endpoint's (30), because every wait is bounded; 0 is
    GASPI_TEST; TransferTimeout is GASPI_TIMEOUT. The first use of a rank connects and looks up its part, within the
    Endpoint's timeout.

    Calls raise IndexError (rank, offset, slot, queue), ValueError, TypeError, TransferTimeout, and PeerLost for a
    lost rank, within 5 s; calls to other ranks work.

    Attributes:
        name: name of the segment.
        nbytes: size of the own part.
        slots: the range of slots on the Endpoint's board that hold notifications 0, 1, ... on every rank.
    """

    def __init__(
        self,
        membership: AllRanks,
        slots: SlotRanges,
        memory: Any,
        *,
        name: str,
        device: str,
        dtype: Any,
        notifications: int,
        queues: int,
    ) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"name must be printable text, not {name!r}")
        if not 1 <= whole("queues", queues) <= MOST_QUEUES:
            raise ValueError(f"queues must be from 1 to {MOST_QUEUES}, not {queues}")
        if whole("notifications", notifications) < 1:
            raise ValueError(f"notifications must be at least 1, not {notifications}")
        self.name, self._membership, self._ranges = name, membership, slots
        self._what = f"segment {name!r} of {membership.name!r}"
        self._queues = [
            Queue(f"queue {number} of {self._what}", membership.named) for number in range(queues)
        ]
        self._part = OwnPart(membership.endpoint, memory, dtype, device)
        self.nbytes, self.closed = self._part.nbytes, False
        self.slots = slots.take(notifications)
        try:
            self._notes = Notes(membership, self.slots, self._what)
            self._parts = Parts(membership, self._part, self._what, self.slots)
            self._on_gpu = (
                membership.gpu_segments.add(self._part, self._parts.find)
                if self._part.on_gpu
                else None
            )
        except BaseException:  # keep slot numbers the same on all ranks
            slots.give_back(self.slots)
            raise

    @property
    def local(self) -> Any:
        """The own part (gaspi_segment_ptr): a NumPy array, or the given array; on a GPU Memory, for from_dlpack()."""
        return self._part.local

    def remote(self, rank: int) -> _core.RemoteMemory:
        """That rank's part, for transfers of ``world.peer(rank)``; raises like the first use of a rank."""
        return self._parts.reach(rank).memory

    # --- one-sided operations, in a queue ---

    def write(
        self,
        rank: int,
        local: Any,
        remote: int,
        nbytes: int | None = None,
        *,
        queue: int = 0,
        stream: Any = None,
    ) -> _core.Transfer:
        """Write to that rank's part at offset `remote` (gaspi_write). stream: as in Peer.write."""
        return self._write(rank, local, remote, nbytes, None, queue, stream)

    def write_notify(
        self,
        rank: int,
        local: Any,
        remote: int,
        nbytes: int | None = None,
        *,
        slot: int,
        value: int = 1,
        queue: int = 0,
        stream: Any = None,
    ) -> _core.Transfer:
        """As write(), then puts a value (1 to 2**32 - 1) into that rank's slot (gaspi_write_notify)."""
        return self._write(rank, local, remote, nbytes, self._notes.at(slot, value), queue, stream)

    def notify(self, rank: int, slot: int, value: int = 1, *, queue: int = 0) -> _core.Transfer:
        """Put a value into a slot of that rank, after the data of all earlier operations to it (gaspi_notify)."""
        note, far = self._notes.at(slot, value), self._parts.reach(rank)
        return self._post(far, queue, lambda: far.peer.notify(*note))

    def write_list(
        self,
        rank: int,
        moves: Iterable[tuple[Any, ...]],
        *,
        queue: int = 0,
        stream: Any = None,
    ) -> _core.Transfer:
        """Write each (local, remote, nbytes), or (local, remote) for arrays, as one operation (gaspi_write_list)."""
        return self._write_list(rank, moves, None, queue, stream)

    def write_list_notify(
        self,
        rank: int,
        moves: Iterable[tuple[Any, ...]],
        slot: int,
        value: int = 1,
        *,
        queue: int = 0,
        stream: Any = None,
    ) -> _core.Transfer:
        """As write_list(), then a notification (gaspi_write_list_notify)."""
        return self._write_list(rank, moves, self._notes.at(slot, value), queue, stream)

    def read(
        self,
        rank: int,
        local: Any,
        remote: int,
        nbytes: int | None = None,
        *,
        queue: int = 0,
        stream: Any = None,
    ) -> _core.Transfer:
        """Read that rank's part, from offset `remote`, into `local` (gaspi_read)."""
        far = self._parts.reach(rank)
        here, there = far.ends(local, remote, nbytes)
        return self._post(far, queue, lambda: far.peer.read(there, here, stream=stream))

    def read_list(
        self,
        rank: int,
        moves: Iterable[tuple[Any, ...]],
        *,
        queue: int = 0,
        stream: Any = None,
    ) -> _core.Transfer:
        """Read each (local, remote, nbytes), as one operation (gaspi_read_list)."""
        far = self._parts.reach(rank)
        pairs = [(there, here) for here, there in far.all_ends(moves)]
        return self._post(far, queue, lambda: far.peer.read_many(pairs, stream=stream))

    def read_notify(
        self,
        rank: int,
        local: Any,
        remote: int,
        nbytes: int | None = None,
        *,
        slot: int,
        value: int = 1,
        queue: int = 0,
    ) -> _core.Transfer:
        """As read(), then puts a value into a slot of this rank (gaspi_read_notify)."""
        note = self._notes.at(slot, value)
        transfer = self.read(rank, local, remote, nbytes, queue=queue)
        self._membership.notify_after(transfer, *note)
        return transfer

    def wait(self, queue: int = 0, timeout: float | None = None) -> None:
        """Complete the operations posted to a queue so far (gaspi_wait).

        Raises TransferTimeout (the rest stays in the queue), or, once all have ended, the first failure: PeerLost,
        VerbsError, ... whose ``effect`` reports what may have been written; then the queue is empty.
        """
        self._queue(queue).wait(self._membership.bound(timeout))

    def _write(
        self,
        rank: int,
        local: Any,
        remote: int,
        nbytes: int | None,
        note: tuple[int, int] | None,
        queue: int,
        stream: Any,
    ) -> _core.Transfer:
        far = self._parts.reach(rank)
        here, there = far.ends(local, remote, nbytes)
        return self._post(
            far, queue, lambda: far.peer.write(here, there, notify=note, stream=stream)
        )

    def _write_list(
        self,
        rank: int,
        moves: Iterable[tuple[Any, ...]],
        note: tuple[int, int] | None,
        queue: int,
        stream: Any,
    ) -> _core.Transfer:
        far = self._parts.reach(rank)
        pairs = far.all_ends(moves)
        return self._post(
            far, queue, lambda: far.peer.write_many(pairs, notify=note, stream=stream)
        )

    def _post(
        self, far: FarPart, queue: int, begin: Callable[[], _core.Transfer]
    ) -> _core.Transfer:
        line = self._queue(queue)
        line.make_room(self._membership.endpoint.timeout)
        transfer = far.named_call(begin)
        line.add(far.rank, transfer)
        return transfer

    # --- notifications of this rank ---

    def notify_waitsome(
        self, first: int = 0, count: int | None = None, timeout: float | None = None
    ) -> int:
        """Wait until one of the slots [first, first + count) has a value; returns which (gaspi_notify_waitsome).

        The value stays there: notify_reset(slot) takes it. count: default all from `first`. Of several slots with a value
        the lowest is returned. Raises TransferTimeout, and PeerLost when no other rank is left; the loss of one rank among
        others does not end the wait.
        """
        return self._notes.wait_some(first, count, self._membership.bound(timeout))

    def notify_reset(self, slot: int) -> int:
        """Empty a slot of this rank and return its value (gaspi_notify_reset); only one of several threads gets it.

        0: it was empty, or another thread was faster. Never waits.
        """
        return self._notes.reset(slot)

    # --- atomics: 64 bits, at an offset that 8 divides, of a part in host memory ---

    def atomic_fetch_add(
        self, rank: int, offset: int, value: int, timeout: float | None = None
    ) -> int:
        """Add to the word at `offset`, modulo 2**64, and return its old value (gaspi_atomic_fetch_add).

        Atomic with respect to atomics of all ranks. value: from -2**63 to 2**64 - 1.
        Returns 0 to 2**64 - 1. Raises ValueError (value, alignment), RouteUnavailable (the part cannot serve atomics), and
        TransferTimeout, after which the word may still change.
        """
        deadline = Deadline(self._membership.bound(timeout))
        far, word = self._word(rank, offset, deadline, value)
        return far.named_call(lambda: int(far.peer.fetch_add(word, value).wait(deadline.left)))

    def atomic_compare_swap(
        self, rank: int, offset: int, expected: int, desired: int, timeout: float | None = None
    ) -> int:
        """Replace the word by `desired` if it is `expected`; returns its old value (gaspi_atomic_compare_swap).

        Everything else as in atomic_fetch_add().
        """
        deadline = Deadline(self._membership.bound(timeout))
        far, word = self._word(rank, offset, deadline, expected, desired)
        return far.named_call(
            lambda: int(far.peer.compare_swap(word, expected, desired).wait(deadline.left))
        )

    def _word(
        self, rank: int, offset: int, deadline: Deadline, *values: int
    ) -> tuple[FarPart, _core.RemoteMemory]:
        for value in values:
            if not _LEAST <= operator.index(value) <= _MOST:
                raise ValueError(f"an atomic has 64 bits: from -2**63 to 2**64 - 1, not {value}")
        far = self._parts.reach(rank, deadline)
        return far, far.word(offset)

    def _queue(self, queue: int) -> Queue:
        if not 0 <= operator.index(queue) < len(self._queues):
            raise IndexError(
                f"{self._what}: queues go from 0 to {len(self._queues) - 1}, not {queue}"
            )
        return self._queues[queue]

    # --- for kernels ---

    def device_queue(
        self, rank: int, *, hears: str = "both", way: str = "auto"
    ) -> _core.DeviceQueue:
        """For kernels that put, get and notify, from this rank's part to that rank's, with offsets as here.

        Slot k of a segment is slot ``segment.slots[k]`` of a kernel's calls. hears, way: as in Peer.device_queue, whose
        errors it raises: ValueError if this rank's part is in host memory.
        """
        return self._parts.reach(rank).device_queue(hears, way)

    def device_board(self, *, device: str = "cuda:0") -> _core.DeviceBoard:
        """The slots of this segment, for kernels of `device` to wait on, until it is closed: Endpoint.device_board."""
        first, count = self._notes.slots()
        return self._membership.endpoint.device_board(first, count, device=device)

    def close(self) -> None:
        """End this rank's part (gaspi_segment_delete); transfers that use it finish first. A second call does nothing.

        The next segment reuses its slots: call a barrier on all ranks first.
        """
        if self.closed:
            return
        self.closed = True
        if self._on_gpu is not None:
            self._membership.gpu_segments.remove(self._on_gpu)
        self._notes.close()
        self._parts.close()
        self._ranges.give_back(self.slots)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<zerohop.Segment {self.name!r}: {self.nbytes} bytes on rank {self._membership.rank}{state}>"

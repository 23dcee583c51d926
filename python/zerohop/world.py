"""A World: the ranks of a job and the way from each to each (GASPI: gaspi_proc_init and its group of all)."""

from __future__ import annotations

import math
import operator
import os
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zerohop import _core
from zerohop.barrier import Barrier
from zerohop.endpoint import Endpoint
from zerohop.errors import Error, PeerLost, TransferTimeout
from zerohop.landings import Landings
from zerohop.launch import job_from_environment
from zerohop.queues import named
from zerohop.segment import Segment
from zerohop.slots import BARRIER, SlotRanges
from zerohop.store import Addresses, Store, open_store

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["World"]

_CONNECT = 2.0  # seconds that a first connection has, however short the wait that needs it
_RARELY = 10  # times as long as it took a look that found nothing is not repeated
_RENEWAL = 3.0  # seconds in which the address of an earlier run in a directory is replaced


class World:
    """Rank, size and Peers of a job whose processes find each other through a store.

    Nothing is collective here: a World of 1000 ranks costs an Endpoint and an entry in the store, and ranks are connected
    when one first needs the other.

    Args:
        store: what all ranks reach and nobody else reads, for the addresses are secrets. A directory (path) that
            only this user may write, made if need be, best a fresh one; or an object with ``set(key, bytes)`` and
            ``get(key)``, as PyTorch's TCPStore, FileStore and HashStore.
        rank: of this process, from 0.
        size: number of ranks.
        name: of the World, the same on all ranks; of several in one store each has its own.
        local_rank: of this process among those of its host, for the choice of a GPU; nothing here depends on it.
        options: keywords of the Endpoint, such as ``device=`` and ``timeout=``.

    The Endpoint is ``world.endpoint``. Slots 0 to 16383 of its board are the program's own; those above belong
    to segments and the barrier. Closed by ``close()`` and ``with``, after which other ranks see PeerLost: so call
    ``barrier()`` before.

    Raises ValueError and TypeError (rank, size, name, store), and what Endpoint raises.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        rank: int,
        size: int,
        *,
        name: str = "world",
        local_rank: int = 0,
        **options: Any,
    ) -> None:
        self.rank, self.size = operator.index(rank), operator.index(size)
        self.name, self.local_rank = name, operator.index(local_rank)
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {rank} of {size}: ranks go from 0 to size - 1")
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"name must be printable text, not {name!r}")
        self._addresses = Addresses(open_store(store), f"zerohop/{name}")
        self._options = options
        who = f"rank {self.rank} of {name} ({socket.gethostname()}:{os.getpid()})"
        self.endpoint = Endpoint(name=who, **options)
        self._peers: dict[int, _core.Peer] = {}
        self._unreached: dict[
            int, PeerLost
        ] = {}  # ranks that were dead when they were first needed
        self._own: Endpoint | None = None  # the one from which this rank reaches itself
        self._lock = (
            threading.RLock()
        )  # around making what is made at the first need; no rank is waited for
        self._landings: Landings | None = None
        self._ranges = SlotRanges()
        self._segments = 0
        self._barrier = Barrier(self, BARRIER)
        self._look_again = 0.0  # time.monotonic() before which has_company() does not look
        try:
            self._addresses.publish(self.rank, self.endpoint.address)
        except BaseException:
            self.endpoint.close()
            raise

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """The World of the launcher that started this process, told by its variables.

        ``torchrun``, and what sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as for torch.distributed: through
        PyTorch's TCPStore, which is open to whoever reaches its port, as for PyTorch itself. options: as of World.

        Raises RuntimeError (no launcher that is known, no PyTorch), ValueError (a variable that says nothing).
        """
        job = job_from_environment(os.environ)
        options = {"local_rank": job.local_rank, **options}
        return cls(job.store, job.rank, job.size, **options)

    def segment(
        self,
        memory: Any,
        *,
        name: str | None = None,
        device: str = "cpu",
        dtype: Any = "uint8",
        notifications: int = 1024,
        queues: int = 8,
    ) -> Segment:
        """Memory of every rank that every rank reads and writes, with notifications (gaspi_segment_create, _use).

        All ranks call it, for the same segments in the same order, each for its part; their sizes may differ. Nobody waits
        for anybody: who first uses a rank's part waits until that rank has made it.

        memory: bytes of this rank's part, zeroed, a multiple of the dtype's; or a contiguous writable array, which
            becomes the part (on a GPU of uint8, with one axis).
        name: the same on all ranks; default: by number, from 0.
        device: of memory that is made, ``"cpu"`` or ``"cuda:<ordinal>"``.
        dtype: of ``segment.local``; on a GPU that is uint8: torch.from_dlpack(segment.local).view(dtype).
        notifications: slots of this segment on every rank, the same number on all.
        queues: 1 to 16; each has up to 1024 operations under way.

        Raises ValueError, TypeError, and what Endpoint.empty and Endpoint.register raise.
        """
        with self._lock:
            number, self._segments = self._segments, self._segments + 1
        return Segment(
            self,
            memory,
            name=str(number) if name is None else name,
            device=device,
            dtype=dtype,
            notifications=notifications,
            queues=queues,
        )

    def peer(self, rank: int, timeout: float | None = None) -> _core.Peer:
        """The Peer of a rank, connected at the first call; of the own rank one that leads back here.

        timeout: seconds to wait for its address (default: the Endpoint's); connecting then has 2 s at least. A Peer that is
        lost is returned as it is: its calls raise PeerLost. The Peer of the own rank belongs to another Endpoint: it
        takes arrays, not Memory of ``world.endpoint``.

        Raises IndexError (rank), TransferTimeout, PeerLost.
        """
        known = self._peers.get(rank)
        if known is not None:
            return known
        self.check_rank(rank)
        if rank == self.rank:
            return self._own_peer()
        if rank in self._unreached:
            raise named(self._unreached[rank], f"rank {rank}")
        seconds = self.bound(timeout)
        try:
            peer = self._dial(rank, time.monotonic() + seconds)
        except PeerLost as error:
            self._unreached[rank] = error
            raise named(error, f"rank {rank}") from None
        except TransferTimeout as error:
            raise named(error, f"rank {rank}") from None
        return self._peers.setdefault(rank, peer)

    def _dial(self, rank: int, end: float) -> _core.Peer:
        while True:
            address = self._addresses.wait(rank, max(0.0, end - time.monotonic()))
            try:
                left = max(_CONNECT, end - time.monotonic())
                return self.endpoint.connect(address, left)
            except PeerLost:
                if not self._addresses.renewed(rank, address, _RENEWAL):
                    raise

    def _own_peer(self) -> _core.Peer:
        """An Endpoint does not connect to itself: a second one does."""
        with self._lock:
            if self._own is None:
                options = {**self._options, "device": self.endpoint.device}
                self._own = Endpoint(name=f"{self.endpoint.name}, to itself", **options)
                self._peers[self.rank] = self._own.connect(self.endpoint.address)
            return self._peers[self.rank]

    def endpoint_to(self, rank: int) -> Endpoint:
        """The Endpoint with which memory is registered that peer(rank) moves."""
        if rank != self.rank:
            return self.endpoint
        self._own_peer()
        assert self._own is not None
        return self._own

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when all ranks have called it (gaspi_barrier). It completes no queue: wait for those before.

        timeout: seconds (default: the Endpoint's). Who calls again after TransferTimeout waits on in the same barrier.

        Raises TransferTimeout, and PeerLost on every rank, now and ever after, when a rank was lost that has not come.
        """
        self._barrier.wait(self.bound(timeout))

    def state(self) -> list[str]:
        """``"healthy"`` or ``"corrupt"`` for every rank, as this one knows it (gaspi_state_vec_get).

        Corrupt is a rank that died, hangs, left or could not be reached when it was needed; one that was never
        needed is healthy.
        """
        return ["healthy" if self._seems_well(rank) else "corrupt" for rank in range(self.size)]

    def _seems_well(self, rank: int) -> bool:
        peer = self._peers.get(rank)
        return peer.alive if peer is not None else rank not in self._unreached

    def lives(self, rank: int, timeout: float) -> bool:
        """False if the rank is lost. It is connected for that; within the time it may also not have started."""
        with suppress(Error):
            self.peer(rank, max(0.0, timeout))
        return self._seems_well(rank)

    def has_company(self) -> bool:
        """Whether another rank is left that might notify this one; connects to one, if there is no Peer yet."""
        others = [rank for rank in range(self.size) if rank != self.rank and self._seems_well(rank)]
        begin = time.monotonic()
        if begin < self._look_again or any(rank in self._peers for rank in others):
            return True
        alive = next((rank for rank in others if self.lives(rank, 0)), None)
        if alive is not None and alive not in self._peers:  # it has not started, or does not answer
            self._own_peer()  # an Endpoint whose last Peer has left does not wait
            self._look_again = time.monotonic() + _RARELY * (time.monotonic() - begin)
        return alive is not None or self.size == 1

    def find_note(
        self, first: int, count: int, seconds: float, *, reset: bool
    ) -> tuple[int, int] | None:
        """The first slot of [first, first + count) with a value, and that; None: not in time, or no Peer is left."""
        with suppress(TransferTimeout, PeerLost):
            return self.endpoint.wait_notify_any(first, count, max(0.0, seconds), reset)
        return None

    def notify_after(self, transfer: _core.Transfer, slot: int, value: int) -> None:
        """Puts a value into a slot of this rank's own board when the transfer has ended well."""
        with self._lock:
            if self._landings is None:
                own = self._own_peer()
                self._landings = Landings(lambda *note: own.notify(*note))
        self._landings.notify(transfer, slot, value)

    def slot_ranges(self) -> SlotRanges:
        return self._ranges

    def check_rank(self, rank: int) -> None:
        if not 0 <= operator.index(rank) < self.size:
            raise IndexError(f"rank {rank} of {self.name!r}: ranks go from 0 to {self.size - 1}")

    def bound(self, timeout: float | None) -> float:
        """In seconds; None is the Endpoint's. Raises ValueError, TypeError."""
        if timeout is None:
            return self.endpoint.timeout
        seconds = float(timeout)
        if not 0 <= seconds < math.inf:
            raise ValueError(f"timeout must be a number of seconds >= 0, not {timeout}")
        return seconds

    def close(self, timeout: float | None = None) -> None:
        """Lets what is posted finish, at most `timeout` seconds, and leaves; others see PeerLost. Twice is once."""
        with self._lock:
            landings, self._landings = self._landings, None
        if landings is not None:
            landings.close()
        if self._own is not None:
            self._own.close(timeout)
        self.endpoint.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.endpoint.closed else ""
        return f"<zerohop.World {self.name!r}: rank {self.rank} of {self.size} on {self.endpoint.device}{state}>"

"""A World: the ranks of a job and their connections (GASPI: gaspi_proc_init and GASPI_GROUP_ALL)."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._endpoint.rails import launcher_local_rank, local_gpu
from zerohop._world.advice import Advice
from zerohop._world.all_ranks import AllRanks, whole_world
from zerohop._world.barrier import Barrier
from zerohop._world.deadline import SLICE, Deadline
from zerohop._world.ending import Ending
from zerohop._world.launcher_calls import LauncherCalls
from zerohop._world.membership import Membership, check_name, left_if_it_fails
from zerohop._world.segment_names import SegmentNames
from zerohop._world.shrinking import Shrinking, name_behind
from zerohop._world.store import Store, open_store
from zerohop.collectives import CollectiveCalls, Desk, ReductionCalls
from zerohop.collectives.gpu_group import check_way
from zerohop.collectives.table import read_table
from zerohop.errors import Error, PeerLost
from zerohop.segment import Segment

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["World"]

_open: weakref.WeakSet[World] = weakref.WeakSet()


class World(LauncherCalls, CollectiveCalls, ReductionCalls):
    """Rank, size and Peers of a job whose processes find each other through a store.

    Making one waits for nobody: a World of 1000 ranks costs an Endpoint and an entry in the store. Two ranks connect
    when one first needs the other.

    Args:
        store: a place that all ranks reach and nobody else reads, because addresses are secrets. A directory (path) that
            only this user may write (else PermissionError), created if necessary, for one run after the other; or an object with
            ``set(key, bytes)`` and ``get(key)``, such as PyTorch's TCPStore, FileStore and HashStore, for one run.
        rank: rank of this process, from 0.
        size: number of ranks.
        name: name of the World, the same on all ranks; several Worlds in one store need different names.
        local_rank: number of this process on its host; it selects ``world.gpu`` and, of several adapters, the
            one nearest to that GPU. Default: ``$ZEROHOP_LOCAL_RANK``, else the launcher's, else 0.
        gpu_collectives: by what collectives of GPU arrays go. "auto": by kernels of the ranks' GPUs, where each rank has a GPU of
            its own on one host, else by messages; "kernels": by those, or RouteUnavailable; "messages".
        options: keywords of the Endpoint, such as ``device=`` and ``timeout=``.

    The Endpoint is ``world.endpoint``. Slots 0 to 16383 of its board are the program's; those above belong
    to segments, collectives and the barrier. ``close()`` and ``with`` close the World, after which other ranks see PeerLost:
    call ``barrier()`` first.

    ``help(zerohop.collectives.CollectiveCalls)`` describes what all collectives have in common.

    In a directory file locks show which ranks are running, so entries of a crashed run do no harm. A rank that was
    in a run waits, within the Endpoint's timeout, until that run has ended before it joins the next. RuntimeWarning: there are
    no such locks, as on some network file systems, or each host has its own; use a fresh directory for each run then.

    Raises ValueError and TypeError (rank, size, a size that differs from other ranks, name, store), Error (the rank is
    taken, or was in a run that does not end), and the errors of Endpoint.
    """

    _advice = Advice()

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        rank: int,
        size: int,
        *,
        name: str = "world",
        local_rank: int | None = None,
        gpu_collectives: str = "auto",
        **options: Any,
    ) -> None:
        if local_rank is None:
            local_rank = launcher_local_rank()
        self.local_rank = whole("local_rank", local_rank)
        if whole("size", size) < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        if not 0 <= whole("rank", rank) < size:
            raise ValueError(f"rank {rank} of {size}: ranks go from 0 to size - 1")
        check_name(name)
        check_way(gpu_collectives)
        self._store = open_store(store)
        options = {"local_rank": self.local_rank, **options}
        self._options = {"gpu_collectives": gpu_collectives, **options}
        self._begin(AllRanks(self._store, name, int(rank), int(size), options, read_table()))

    def _begin(self, membership: Membership) -> None:
        self._membership, self.endpoint = membership, membership.endpoint
        self.name, self.rank, self.size = membership.name, membership.rank, membership.size
        ending = Ending(membership, self._advice)
        self._barrier = Barrier(membership, ending)
        self._desk = Desk(membership, ending, self._options["gpu_collectives"])
        self._names = SegmentNames(self.name)
        self._shrinking = Shrinking(membership, self._barrier, ending, self._store)
        self._next: World | None = None  # of the survivors; returned once they have met
        self._has_next = False
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether this rank has closed it."""
        return self._membership.closed

    @property
    def has_gpu_kernels(self) -> bool:
        """Whether reductions of GPU arrays, and other collectives of them with ``stream=``, go by kernels."""
        return self._desk.gpus.ready

    @property
    def gpu_collectives(self) -> str:
        """By what collectives of GPU arrays go, and why: "kernels of cuda:0", "messages: ranks 0 and 1 share the GPU ..."."""
        return self._desk.gpus.text

    @property
    def gpu(self) -> str:
        """The GPU of this rank, as zerohop.local_gpu(): ``"cuda:3"``, or ``"cpu"`` if it sees none."""
        return local_gpu(self.local_rank)

    def split(self, ranks: Sequence[int], *, name: str | None = None) -> Self:
        """A World of some ranks, which uses the connections of this one (MPI_Comm_create_group). Only those ranks call it.

        It has collectives, barrier() and state() of its own, with their own order and failures: a call that fails there ends nothing here,
        and a rank that dies is lost in all Worlds that contain it. It has no thread. Making one waits for nobody; its first call waits
        for ranks that have yet to make it. Close it on all of its ranks; others see PeerLost if they still need this rank. Closing
        this World closes it.

        ``peer(rank)`` is the Peer of this World, with the same messages and notifications. It has no segments; about 600 can exist.

        ranks: this World's, the same list on all of them; a rank's number in the new World is its place there.
        name: the same on all of them; default: made from the ranks. Calls with the same name and ranks match in their order.

        Raises ValueError (this rank is not among them, name, no slots are left), TypeError, Error.
        """
        made = type(self).__new__(type(self))
        made.local_rank, made._options, made._store = self.local_rank, self._options, self._store
        with left_if_it_fails(self._membership.split(ranks, name)) as membership:
            made._begin(membership)
        return made

    def segment(
        self,
        memory: Any,
        *,
        name: str | None = None,
        device: str | None = None,
        dtype: Any = None,
        notifications: int = 1024,
        queues: int = 8,
    ) -> Segment:
        """Memory of every rank that all ranks read and write, with notifications (gaspi_segment_create, _use).

        All ranks call it for the same segments in the same order, each for its own part; the sizes may differ. The call waits
        for nobody: the first use of a rank's part waits until that rank has made it.

        memory: bytes of this rank's part, zeroed, a multiple of the dtype's; or a contiguous writable array, which
            becomes the part. Collectives by kernels of large arrays in GPU memory of a segment go in place.
        name: the same on all ranks, and different from other open segments; default: by number, from 0.
        device: where new memory is made, ``"cpu"`` (default) or ``"cuda:<ordinal>"``.
        dtype: dtype of ``segment.local`` for new memory, as in Endpoint.empty; default uint8.
        notifications: number of slots of this segment, the same on all ranks.
        queues: 1 to 16; each has up to 1024 operations in flight.

        Raises ValueError, TypeError, and the errors of Endpoint.empty and Endpoint.register.
        """
        membership = whole_world(self._membership)
        membership.check_open()
        made = hasattr(memory, "__index__") and not hasattr(memory, "__dlpack__")
        if not made and (device is not None or dtype is not None):
            raise ValueError("device and dtype apply only to new memory: an array has its own")
        segment = Segment(
            membership,
            membership.ranges,
            memory,
            name=self._names.choose(name),
            device=device or "cpu",
            dtype="uint8" if dtype is None else dtype,
            notifications=notifications,
            queues=queues,
        )
        self._names.add(segment)
        return segment

    def peer(self, rank: int, timeout: float | None = None) -> _core.Peer:
        """The Peer of a rank, connected at the first call; for the own rank a Peer that leads back here.

        timeout: seconds to wait for its address (default: the Endpoint's); connecting then has at least 2 s. A lost Peer
        is returned as it is: its calls raise PeerLost. The Peer of the own rank belongs to another Endpoint: it
        takes arrays, not Memory of ``world.endpoint``.

        Raises IndexError (rank), ValueError (it has another size), TransferTimeout, PeerLost. Like every call of World it ends
        within a second of its timeout.
        """
        return self._membership.peer(rank, Deadline(self._membership.bound(timeout)))

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when all ranks have called it (gaspi_barrier). It does not complete queues: wait for those first.

        All ranks call it and the collectives in the same order.

        timeout: seconds (default: the Endpoint's). A call after TransferTimeout continues to wait in the same barrier.

        Raises TransferTimeout; PeerLost when a rank was lost: on every rank, from now on, if that rank had not come to this
        barrier. If it had come, some ranks may return and others raise, and the next barrier raises on all. Raises ValueError if
        ranks have called different things.
        """
        try:
            waited = self._barrier.attempt(timeout)
            if waited is not None:
                self._barrier.wait(timeout, waited)
        except Error as error:
            known = self._membership.or_closed(error)
            if known is error:
                raise
            raise known from None

    def state(self) -> list[str]:
        """``"healthy"`` or ``"corrupt"`` for every rank, as this rank knows it (gaspi_state_vec_get).

        A corrupt rank died, hangs, left or could not be reached when it was needed; one that was never
        needed is healthy.
        """
        well = map(self._membership.seems_well, range(self.size))
        return ["healthy" if each else "corrupt" for each in well]

    def connected(self) -> list[int]:
        """The other ranks to which this one has a Peer, alive or lost. Never blocks."""
        return self._membership.connected()

    def shrink(
        self, timeout: float | None = None, *, store: Store | str | os.PathLike[str] | None = None
    ) -> World:
        """A new World of the remaining ranks after some are lost (MPI: ULFM's MPI_Comm_shrink). All remaining ranks call it.

        They are renumbered in the old order, and all of them get the same World: the ranks that came to this call and
        have not lost each other. A rank that died, hangs or left is waited for only until that is known; one that
        lives and does not come, until the timeout. A rank that nobody is connected to and that does not answer, or has no entry
        in the store yet, is excluded after 5 s, whatever the timeout. A rank that dies meanwhile is not in the new World, or is lost
        in it; then all shrink that one. A rank that the others have lost and that comes later (it was stopped, or cut off) gets
        PeerLost. Ranks that are cut off from each other but reach the store do not form two Worlds: those of one side continue,
        the others get PeerLost.

        The new World has an Endpoint of its own, with the options of this one: register arrays and make segments again. Collectives
        and the barrier of this World have ended, on all ranks; its segments and Peers work until it is closed, which may be at once.

        timeout: seconds (default: the Endpoint's). A call after TransferTimeout continues to wait.
        store: where the survivors meet: a fresh store, for this run only, because entries of an earlier run would count.
            Default: the World's, which must still work, and return at once for keys that nobody has set (as a directory,
            PyTorch's stores and Redis do); a PyTorch store that does not answer within 5 s counts as down. Another store
            needs ``compare_set(key, expected, desired)`` or ``setnx(key, value)``. A World of from_mpi() has no such store, and
            a directory without locks does not work.

        Raises TransferTimeout, PeerLost, Error (no store works), and the errors of World.
        """
        deadline = Deadline(self._membership.bound(timeout))
        if self._next is None:
            meeting, ranks = self._shrinking.agree(deadline, store)
            rank, name = ranks.index(self.rank), name_behind(self._membership)
            self._next = World(meeting, rank, len(ranks), name=name, **self._options)
        if not self._has_next:
            self._next = self._met(self._next, deadline)
            self._has_next = True
        return self._next

    def _met(self, made: World, deadline: Deadline) -> World:
        """Returns `made` if all its ranks have made it and live; otherwise shrinks it again."""
        try:
            made.barrier(deadline.left)
        except PeerLost:
            smaller = made.shrink(deadline.left)
            made.close()
            return smaller
        self._shrinking.meet()
        return made

    def close(self, timeout: float | None = None) -> None:
        """Waits at most `timeout` seconds (default: the Endpoint's) for posted operations, and leaves; others see PeerLost. A second
        call does nothing.

        A World made by split() only ends its collectives, barrier and messages: the Peers stay, and with them what else was posted. It
        waits for kernels of its collectives, and at most a second for calls of other threads and until the others know.

        During an exception (``finally``, ``except``, or the end of ``with``) the errors of other ranks include it, in one line;
        likewise if an exception ends the program.
        Collectives with ``wait=False`` that have not ended fail with an Error. RuntimeWarning: there are such calls, or others have sent
        data to this rank that no call has received.
        """
        self._close(timeout, sys.exc_info()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        self._close(None, exc)

    def _close(self, timeout: float | None, error: BaseException | None) -> None:
        if self._membership.is_forked:  # it is the parent's, and a thread of that may hold locks
            return
        untaken = self._desk.untaken() if error is None and self._membership.is_here else ""
        behind = self._desk.behind() if error is None and self._membership.is_here else []
        deadline = Deadline(self._membership.bound(timeout))
        if self._next is not None and not self._has_next:
            self._next.close(deadline.left)
        try:
            self._membership.say_why(error)
            # After an error other ranks may never come to what is under way.
            self._desk.gpus.close(Deadline(0.0) if error else deadline)
        finally:
            self._membership.close(deadline)
            self._desk.ring_off(min(SLICE, deadline.left))
            self._membership.let_go(self._has_ended, deadline)
        cut_off = [call.text for call in behind if call.state != "done"]
        if cut_off:
            warnings.warn(
                f"rank {self.rank} closes the World {self.name!r} before calls with wait=False have ended: {', '.join(cut_off)}; their "
                "results are not complete: call wait() on what they returned first",
                RuntimeWarning,
                stacklevel=3,
            )
        if untaken:
            warnings.warn(
                f"rank {self.rank} leaves the World {self.name!r} without what others have sent: {untaken}; every call "
                "needs a matching call here, send_recv one with from_=",
                RuntimeWarning,
                stacklevel=3,
            )

    def _has_ended(self, seconds: float) -> bool:
        """Once it is closed: waits at most `seconds` for calls in progress. Returns whether all have ended."""
        return self._desk.join(seconds) and self._barrier.join()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<zerohop.World {self.name!r}: rank {self.rank} of {self.size} on {self.endpoint.device}{state}>"

    def _repr_html_(self) -> str:
        from zerohop.notebook.ranks import world_html

        peers = {rank: self.peer(rank) for rank in self.connected()}
        return world_html(self.name, self.rank, self.state(), self.endpoint, peers)


@atexit.register  # registered after the Endpoint's, and so run before it
def _say_why() -> None:
    # Interactive (IPython, too): the last exception did not end the program.
    if hasattr(sys, "ps1"):
        return
    for world in list(_open):
        # The exception that ended the program.
        world._membership.say_why(getattr(sys, "last_value", None))

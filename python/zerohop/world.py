"""A World: the ranks of a job and the way from each to each (GASPI: gaspi_proc_init and its group of all)."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._endpoint.rails import local_gpu, told_local_rank
from zerohop._world.barrier import Barrier
from zerohop._world.deadline import Deadline
from zerohop._world.ending import Ending
from zerohop._world.failure_reports import described
from zerohop._world.launch import PATIENCE, job_from_environment
from zerohop._world.membership import Membership
from zerohop._world.notifications import BARRIER, BELL, SlotRanges, collective_slots
from zerohop._world.shrinking import Shrinking, name_behind
from zerohop._world.store import Store, open_store
from zerohop.collectives import CollectiveCalls, Desk
from zerohop.errors import PeerLost
from zerohop.segment import Segment

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["World"]

_open: weakref.WeakSet[World] = weakref.WeakSet()


class World(CollectiveCalls):
    """Rank, size and Peers of a job whose processes find each other through a store.

    To make one waits for nobody: a World of 1000 ranks costs an Endpoint and an entry in the store, and ranks are connected
    when one first needs the other.

    Args:
        store: what all ranks reach and nobody else reads, for the addresses are secrets. A directory (path) that
            only this user may write (else PermissionError), made if need be, for one run after the other; or an object with ``set(key, bytes)``
            and ``get(key)``, as PyTorch's TCPStore, FileStore and HashStore, for one run.
        rank: of this process, from 0.
        size: number of ranks.
        name: of the World, the same on all ranks; of several in one store each has its own.
        local_rank: of this process among those of its host, by which ``world.gpu`` is chosen and, of several adapters, the
            one that is nearest to that. Default: ``$ZEROHOP_LOCAL_RANK``, else what a launcher has told, else 0.
        options: keywords of the Endpoint, such as ``device=`` and ``timeout=``.

    The Endpoint is ``world.endpoint``. Slots 0 to 16383 of its board are the program's own; those above belong
    to segments, collectives and the barrier. Closed by ``close()`` and ``with``, after which other ranks see PeerLost: so call
    ``barrier()`` before.

    What all collectives have in common is told in ``help(zerohop.collectives.CollectiveCalls)``.

    In a directory file locks tell who is there, so that what a crashed run has left misleads nobody. A rank that was
    in a run waits, within the Endpoint's timeout, until that has ended before it is in the next. RuntimeWarning: there are no
    such locks, as on some network file systems, or each host has its own; then take a fresh directory for each run.

    Raises ValueError and TypeError (rank, size, another size than other ranks have, name, store), Error (the rank is
    taken, or was in a run that does not end), and what Endpoint raises.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        rank: int,
        size: int,
        *,
        name: str = "world",
        local_rank: int | None = None,
        **options: Any,
    ) -> None:
        self.rank, self.size = whole("rank", rank), whole("size", size)
        if local_rank is None:
            local_rank = told_local_rank()
        self.name, self.local_rank = name, whole("local_rank", local_rank)
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {rank} of {size}: ranks go from 0 to size - 1")
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"name must be printable text, not {name!r}")
        store = open_store(store)
        self._options = {"local_rank": self.local_rank, **options}
        self._membership = Membership(store, name, self.rank, self.size, self._options)
        self.endpoint = self._membership.endpoint
        ending = Ending(self._membership)
        self._barrier = Barrier(self._membership, BARRIER, BELL, ending)
        slots = collective_slots(self.size)
        self._desk = Desk(self._membership, slots, ending)
        self._slots = SlotRanges(slots.start)
        # By name, the latest.
        self._segments: weakref.WeakValueDictionary[str, Segment] = weakref.WeakValueDictionary()
        self._made = 0  # how many
        self._shrinking = Shrinking(self._membership, self._barrier, ending, store)
        self._next: World | None = None  # of the survivors; the program has it once they have met
        self._has_next = False
        _open.add(self)

    @classmethod
    def from_env(cls, store: Store | str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """The World of the launcher that started this process, told by its variables.

        ``torchrun``, and what sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as for torch.distributed: through
        PyTorch's TCPStore, which is open to whoever reaches its port, as for PyTorch itself. ``mpirun`` of Open MPI and MPICH:
        as ``from_mpi(MPI.COMM_WORLD)``. ``srun``: through PyTorch's store, too, at MASTER_ADDR and MASTER_PORT if the job sets them,
        else `store` has to be given.

        store: where the ranks meet instead, as of World; a directory that all hosts see, say. options: as of World;
        ``timeout=`` bounds the wait for the ranks to start, too (without it, 300 s).

        Raises Error, a RuntimeError (no launcher that is known: which variables were looked for and are not set; no PyTorch, no
        mpi4py, nowhere to meet), ValueError (a variable that says nothing), TransferTimeout (nobody runs the store), and what
        from_mpi raises.
        """
        job = job_from_environment(os.environ, _patience(options), store)
        if job.store is None:
            from zerohop._world.mpi import everyone

            return cls.from_mpi(everyone(job), **options)
        return cls(job.store, job.rank, job.size, **options)

    @classmethod
    def from_mpi(cls, comm: Any, **options: Any) -> Self:
        """The World of an MPI communicator (mpi4py), one that was split, too. Every rank of it calls this.

        The ranks have that communicator's numbers and tell each other their addresses by it, once; what they exchange in the
        World goes without MPI, so that MPI may be finalized before. options: as of World, but a local rank that nobody tells
        is counted; ``timeout=`` bounds the wait for the other ranks, too (without it, 300 s).

        Raises TypeError and ValueError (no communicator, COMM_NULL, an intercommunicator), Error (MPI itself fails; the World
        of another rank cannot be made), TransferTimeout (not all ranks call this), and what World raises.
        """
        from zerohop._world.mpi import GatheredStore, Group

        group, store = Group(comm, _patience(options)), GatheredStore()
        counted = group.local_rank()  # before `try`: if it fails, so would fail()
        try:
            if options.get("local_rank") is None:
                # The launcher counts the ranks of all its communicators: of two on one host each has GPUs of its own.
                options["local_rank"] = told_local_rank(default=counted)
            world = cls(store, group.rank, group.size, **options)
        except Exception as error:
            store.fail(group, described(error))  # so that nobody waits for this one
            raise
        try:
            store.gather(group)
        except BaseException:
            world.close()
            raise
        return world

    @property
    def gpu(self) -> str:
        """Of this rank, as zerohop.local_gpu(): ``"cuda:3"``, or ``"cpu"`` where it sees none."""
        return local_gpu(self.local_rank)

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
        """Memory of every rank that every rank reads and writes, with notifications (gaspi_segment_create, _use).

        All ranks call it, for the same segments in the same order, each for its part; their sizes may differ. Nobody waits
        for anybody: who first uses a rank's part waits until that rank has made it.

        memory: bytes of this rank's part, zeroed, a multiple of the dtype's; or a contiguous writable array, which
            becomes the part.
        name: the same on all ranks, and no other open segment's; default: by number, from 0.
        device: of memory that is made, ``"cpu"`` (default) or ``"cuda:<ordinal>"``.
        dtype: of ``segment.local`` that is made, as of Endpoint.empty; default uint8.
        notifications: slots of this segment on every rank, the same number on all.
        queues: 1 to 16; each has up to 1024 operations under way.

        Raises ValueError, TypeError, and what Endpoint.empty and Endpoint.register raise.
        """
        self._membership.check_open()
        made = hasattr(memory, "__index__") and not hasattr(memory, "__dlpack__")
        if not made and (device is not None or dtype is not None):
            raise ValueError("device and dtype are of memory that is made: an array has its own")
        name = self._free_name() if name is None else name
        if isinstance(name, str) and self._is_taken(name):
            raise ValueError(
                f"the World {self.name!r} has a segment {name!r} already: close that one first, or give this one another name"
            )
        segment = Segment(
            self._membership,
            self._slots,
            memory,
            name=name,
            device=device or "cpu",
            dtype="uint8" if dtype is None else dtype,
            notifications=notifications,
            queues=queues,
        )
        self._segments[name] = segment
        self._made += 1
        return segment

    def _free_name(self) -> str:
        """The same on all ranks: of their number, or the next that no open segment has been given."""
        number = self._made
        while self._is_taken(str(number)):
            number += 1
        return str(number)

    def _is_taken(self, name: str) -> bool:
        segment = self._segments.get(name)
        return segment is not None and not segment.closed

    def peer(self, rank: int, timeout: float | None = None) -> _core.Peer:
        """The Peer of a rank, connected at the first call; of the own rank one that leads back here.

        timeout: seconds to wait for its address (default: the Endpoint's); connecting then has 2 s at least. A Peer that is
        lost is returned as it is: its calls raise PeerLost. The Peer of the own rank belongs to another Endpoint: it
        takes arrays, not Memory of ``world.endpoint``.

        Raises IndexError (rank), ValueError (it has another size), TransferTimeout, PeerLost. As every call here it ends
        within a second of its timeout.
        """
        return self._membership.peer(rank, Deadline(self._membership.bound(timeout)))

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when all ranks have called it (gaspi_barrier). It completes no queue: wait for those before.

        All ranks call it and the collectives in the same order.

        timeout: seconds (default: the Endpoint's). Who calls again after TransferTimeout waits on in the same barrier.

        Raises TransferTimeout; PeerLost when a rank was lost: on every rank, now and ever after, if that rank had not come to this
        barrier. If it had come, some ranks may return and others raise, and the next barrier raises on all. Raises ValueError where
        ranks have called different things.
        """
        waited = self._barrier.attempt(timeout)
        if waited is not None:
            self._barrier.wait(timeout, waited)

    def state(self) -> list[str]:
        """``"healthy"`` or ``"corrupt"`` for every rank, as this one knows it (gaspi_state_vec_get).

        Corrupt is a rank that died, hangs, left or could not be reached when it was needed; one that was never
        needed is healthy.
        """
        well = map(self._membership.seems_well, range(self.size))
        return ["healthy" if each else "corrupt" for each in well]

    def connected(self) -> list[int]:
        """The other ranks of which this one has a Peer, alive or lost. Never blocks."""
        return self._membership.connected()

    def shrink(
        self, timeout: float | None = None, *, store: Store | str | os.PathLike[str] | None = None
    ) -> World:
        """A new World of the ranks that are left, when some are lost (MPI: ULFM's MPI_Comm_shrink). All that are left call it.

        Their numbers follow each other in the old order, and all have the same ranks in it: those that came to this call and
        have not lost each other. A rank that died, hangs or left is waited for no longer than it takes to know that; one that
        lives and does not come, until the timeout. A rank that nobody is connected to and that does not answer, or of which the
        store has no entry yet, is given up after 5 s, whatever the timeout. Who dies meanwhile is not in it, or is lost in it; then
        all shrink that one. A rank that the others have lost and that comes later (it was stopped, or cut off) gets PeerLost.
        Ranks that are cut off from each other but reach the store do not become two Worlds: those of one side go on, the others
        get PeerLost.

        The new World has an Endpoint of its own, with the options of this one: register arrays and make segments anew. Collectives
        and barrier of this one are over, on all ranks; its segments and Peers serve on until it is closed, which may be at once.

        timeout: seconds (default: the Endpoint's). Who calls again after TransferTimeout waits on.
        store: where the survivors meet, fresh, for this run alone: what an earlier one has left there would count as theirs.
            Default: the World's, which has to serve still, and without waiting for what nobody has set (a directory,
            PyTorch's stores, Redis); one of PyTorch's that does not answer a call in 5 s does not serve. A store of another kind
            needs ``compare_set(key, expected, desired)`` or ``setnx(key, value)``. A World of from_mpi() has none that does, nor
            has a directory without locks.

        Raises TransferTimeout, PeerLost, Error (no store serves), and what World raises.
        """
        deadline = Deadline(self._membership.bound(timeout))
        if self._next is None:
            meeting, ranks = self._shrinking.agree(deadline, store)
            rank, name = ranks.index(self.rank), name_behind(self.name)
            self._next = World(meeting, rank, len(ranks), name=name, **self._options)
        if not self._has_next:
            self._next = self._met(self._next, deadline)
            self._has_next = True
        return self._next

    def _met(self, made: World, deadline: Deadline) -> World:
        """All survivors have made it, and live; else those that are left of it shrink it."""
        try:
            made.barrier(deadline.left)
        except PeerLost:
            smaller = made.shrink(deadline.left)
            made.close()
            return smaller
        self._shrinking.meet()
        return made

    def close(self, timeout: float | None = None) -> None:
        """Lets what is posted finish, at most `timeout` seconds, and leaves; others see PeerLost. Twice is once.

        Where an exception is under way (``finally``, ``except``, or ``with`` that it ends) their errors say which, in a line; so
        they do if one ends the program.
        Collectives that nobody has waited for and that have not ended do so with an Error. RuntimeWarning: others have sent
        to this rank what none of its calls has taken.
        """
        self._close(timeout, sys.exc_info()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(None, exc)

    def _close(self, timeout: float | None, error: BaseException | None) -> None:
        untaken = self._desk.untaken() if error is None and self._membership.is_here else ""
        if self._next is not None and not self._has_next:
            self._next.close()
        try:
            self._membership.say_why(error)
        finally:
            self._membership.close(timeout)
        if untaken:
            warnings.warn(
                f"rank {self.rank} leaves the World {self.name!r} without what others have sent: {untaken}; every call "
                "needs its counterpart here, send_recv one with from_=",
                RuntimeWarning,
                stacklevel=3,
            )

    def __repr__(self) -> str:
        state = ", closed" if self.endpoint.closed else ""
        return f"<zerohop.World {self.name!r}: rank {self.rank} of {self.size} on {self.endpoint.device}{state}>"

    def _repr_html_(self) -> str:
        from zerohop.notebook.ranks import world_html

        peers = {rank: self.peer(rank) for rank in self.connected()}
        return world_html(self.name, self.rank, self.state(), self.endpoint, peers)


def _patience(options: dict[str, Any]) -> float:
    """Seconds for all ranks to start."""
    timeout = options.get("timeout")
    return PATIENCE if timeout is None else timeout


@atexit.register  # behind the Endpoint's, and so before it
def _say_why() -> None:
    if hasattr(sys, "ps1"):  # interactive (IPython, too): the last exception there ended no program
        return
    for world in list(_open):
        world._membership.say_why(getattr(sys, "last_value", None))  # what has ended the program

"""Makes a World of the remaining ranks of one that has lost ranks (MPI: ULFM's MPI_Comm_shrink).

All ranks learn that it has ended. Each survivor puts a note into the store: that it came, and which ranks it has lost. The lowest
rank that is not lost waits until every other one has come or is lost, and proposes; if it is lost itself, the next one does. The first
proposal counts for all: the store sets that key once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from zerohop._world.deadline import Deadline, looks
from zerohop._world.ending import Cause, Ending
from zerohop._world.failure_reports import LOST, OTHER
from zerohop._world.store import Answers, Store, open_store, peek, set_once
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.barrier import Barrier
    from zerohop._world.membership import Membership

_T = TypeVar("_T")


class RunStore:
    """run: its name; empty: the store serves one. Raises Error if the store fails."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._prefix = store, f"{run}/" if run else ""
        self._answers = Answers(store)

    def set(self, key: str, value: bytes) -> None:
        self._call(lambda: self._store.set(self._prefix + key, value))

    def set_once(self, key: str, value: bytes) -> bytes:
        """Sets the key unless it has been set. Returns its value from then on, for all."""
        return self._call(lambda: set_once(self._store, self._prefix + key, value))

    def get(self, key: str) -> bytes | None:
        """The current value; None: nobody has set it yet."""
        return self._call(lambda: peek(self._store, self._prefix + key))

    def get_json(self, key: str) -> object:
        """The value from JSON; None also if it is not JSON."""
        try:
            return json.loads(self.get(key) or b"null")
        except ValueError:
            return None

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return self._answers.of(call)
        except Exception as error:
            raise Error(
                f"{self._store!r} does not work ({type(error).__name__}: {error}): give shrink(store=) one that all remaining ranks "
                "reach, a fresh one for this run only, such as a directory"
            ) from error


# Seconds within which all connected ranks notice that a rank has died or hangs.
_LOST = 5.0
_SILENT = 5.0  # seconds that a rank without connections has to answer


class Survivors:
    """The agreement among the survivors of one World. membership: that World's."""

    def __init__(self, membership: Membership, store: RunStore) -> None:
        self._membership, self.store = membership, store
        self._key = f"zerohop/{membership.key}/shrink"
        self._noted: list[int] | None = None  # the lost ranks in this rank's note
        self._came: dict[int, set[int]] = {}  # the lost ranks of each rank that has come
        # since when (time.monotonic()) a rank that came has been lost to another that came.
        self._doubted: dict[int, float] = {}
        self._silent: dict[int, float] = {}  # since when (time.monotonic()) a rank has not answered

    def agree(self, deadline: Deadline) -> list[int]:
        """The ranks that continue, in order. Raises PeerLost (this one is not among them), TransferTimeout (a live rank does not come)."""
        membership, missing = self._membership, []
        for _ in looks(deadline.end):
            self._note()
            decided = self.store.get_json(f"{self._key}/decided")
            if decided is None and self._leads(deadline):
                missing = self._missing(deadline)
                if not missing and not self._in_doubt(deadline):
                    decided = self._propose()
            if isinstance(decided, list):
                return self._with_this_one(decided)
        if missing:
            raise TransferTimeout(
                f"shrink of {membership.name!r}: rank {missing[0]} has not come in time, and is not lost; call again to continue waiting"
            )
        if self._doubted:
            raise TransferTimeout(
                f"shrink of {membership.name!r}: ranks that came have lost each other, and it is not known yet whether one of them has died; "
                "call again to continue waiting"
            )
        raise TransferTimeout(
            f"shrink of {membership.name!r}: the lowest remaining rank has not decided in time; call again to continue waiting"
        )

    def _propose(self) -> object:
        """The decision: another rank's proposal, if that came first."""
        proposal = json.dumps(self._who_fit()).encode()
        return json.loads(self.store.set_once(f"{self._key}/decided", proposal))

    def _note(self) -> None:
        lost = self._membership.lost_ranks()
        if lost != self._noted:
            self.store.set(f"{self._key}/{self._membership.rank}", json.dumps(lost).encode())
            self._noted = lost

    def _leads(self, deadline: Deadline) -> bool:
        short = deadline.by_the_way()  # one deadline for all of them
        return not any(self._lives(rank, short) for rank in range(self._membership.rank))

    def _missing(self, deadline: Deadline) -> list[int]:
        """Ranks that have not come although no continuing rank has lost them."""
        own, size = self._membership.rank, self._membership.size
        for rank in range(size):
            lost = self.store.get_json(f"{self._key}/{rank}")
            if isinstance(lost, list):
                self._came[rank] = set(lost)
        given_up: set[int] = set().union(*(self._came[rank] for rank in self._who_fit()))
        waited_for = set(range(own, size)) - self._came.keys() - given_up
        short = deadline.by_the_way()
        return [rank for rank in sorted(waited_for) if self._lives(rank, short)]

    def _in_doubt(self, deadline: Deadline) -> bool:
        """Whether a rank that came has lost another that this rank has not. It may just have died; then this rank will notice."""
        fit, membership = self._who_fit(), self._membership
        doubted = self._came.keys() - {*fit, *membership.lost_ranks()}
        short, now = deadline.by_the_way(), time.monotonic()
        for rank in fit:
            if doubted and rank != membership.rank:
                membership.lives(rank, short)  # once connected, it is watched
        self._doubted = {rank: self._doubted.get(rank, now) for rank in doubted}
        return any(now < since + _LOST for since in self._doubted.values())

    def _lives(self, rank: int, deadline: Deadline) -> bool:
        """Also true for a rank without a Peer that may live: it has yet to start, or is slow to answer."""
        if not self._membership.lives(rank, deadline):
            return False
        if rank in self._membership.with_peer():
            self._silent.pop(rank, None)
            return True
        return time.monotonic() < self._silent.setdefault(rank, time.monotonic()) + _SILENT

    def _who_fit(self) -> tuple[int, ...]:
        """Of the ranks that have come: this one, which has lost all lower ones, and of two that have lost each other the lower."""
        own = self._membership.rank
        self._came[own] = set(self._membership.lost_ranks())
        fit = [own]
        for rank in sorted(self._came.keys() - {own}):
            lost = self._came[rank]
            if not any(other in lost or rank in self._came[other] for other in fit):
                fit.append(rank)
        return tuple(sorted(fit))

    def _with_this_one(self, decided: list[int]) -> list[int]:
        membership = self._membership
        if membership.rank not in decided:
            raise PeerLost(
                f"shrink of {membership.name!r}: rank {membership.rank} was excluded, and the World continues with the former "
                f"ranks {', '.join(map(str, decided))}; end this process, or start again"
            )
        return decided


class SurvivorsStore:
    """A Store for the next World, which reports ranks that are lost before all have met there.

    survivors: ranks of the previous World, by their new ones; membership: of the previous World.
    """

    def __init__(self, store: RunStore, membership: Membership, survivors: list[int]) -> None:
        self.store, self._membership, self._survivors = store, membership, survivors
        self._key = f"zerohop/{membership.key}/shrink/met"
        self._met = False

    def meet(self) -> None:
        """All have met: from now on a rank may leave the previous World without counting as lost here."""
        self.store.set(f"{self._key}/{self._membership.rank}", b"true")
        self._met = True

    def set(self, key: str, value: Any) -> None:
        self.store.set(key, value)

    def get(self, key: str) -> bytes | None:
        """Raises PeerLost, Error."""
        value = self.store.get(key)
        if not self._met and self._is_lost(self._survivors[int(key.rpartition("/")[2])]):
            raise PeerLost("it was lost while the World was shrunk")
        return value

    def _is_lost(self, before: int) -> bool:
        membership = self._membership
        if before == membership.rank or membership.lives(before, Deadline(0.0)):
            return False
        # If the previous World is closed here, all its ranks seem lost.
        return membership.is_here and self.store.get(f"{self._key}/{before}") is None

    def __repr__(self) -> str:
        return "the addresses that the survivors have exchanged"


_SHRUNK = ", shrunk "  # follows a World's name, before the number of shrinks


class Shrinking:
    """The shrinking of one World. store: where that was made."""

    def __init__(
        self, membership: Membership, barrier: Barrier, ending: Ending, store: Store
    ) -> None:
        self._membership, self._barrier, self._ending, self._store = (
            membership,
            barrier,
            ending,
            store,
        )
        self._survivors: Survivors | None = None
        self._given: Store | str | os.PathLike[str] | None = None  # where they meet
        self._meeting: SurvivorsStore | None = None

    def agree(
        self, deadline: Deadline, store: Store | str | os.PathLike[str] | None
    ) -> tuple[SurvivorsStore, list[int]]:
        """The store of the next World, and its ranks. A call after a timeout continues."""
        membership = self._membership
        membership.check_open()
        if self._survivors is None or (store is not None and store != self._given):
            self._given = store
            self._survivors = Survivors(membership, self._run_store(store))
            self._report_loss(deadline)
        ranks = self._survivors.agree(deadline)
        self._meeting = SurvivorsStore(self._survivors.store, membership, ranks)
        return self._meeting, ranks

    def meet(self) -> None:
        """Called when all have met in the next World."""
        assert self._meeting is not None
        self._meeting.meet()

    def _run_store(self, store: Store | str | os.PathLike[str] | None) -> RunStore:
        from zerohop._world.mpi import GatheredStore

        run = self._membership.run
        if store is not None:
            return RunStore(open_store(store), run or "")
        if isinstance(self._store, SurvivorsStore):
            return self._store.store
        if run is None or isinstance(self._store, GatheredStore):
            raise Error(
                f"the World {self._membership.name!r} has no store in which its survivors could meet (it was made by MPI, or in a directory "
                "without file locks): give shrink(store=) a fresh directory, for example"
            )
        return RunStore(self._store, run)

    def _report_loss(self, deadline: Deadline) -> None:
        """Reports the loss to ranks that still wait in a collective or the barrier, perhaps for this rank."""
        ranks = self._membership.lost_ranks()
        lost = self._membership.first_lost(ranks) if ranks else None
        self._barrier.give_up(lost, deadline)
        kind, why = OTHER, "rank"
        if lost is not None:
            kind, why = LOST, f"{self._membership.lost(lost)}, and rank"
        self._ending.declare(Cause(kind, f"{why} {self._membership.rank} has called shrink()"))


def name_behind(membership: Membership) -> str:
    """The name of the next World after that one; Worlds of some ranks may have equal names, but not keys."""
    name, key = membership.name, membership.key
    if key != name:
        name += f" ({key})"
    base, _, count = name.rpartition(_SHRUNK)
    if base and count.isdecimal():
        return f"{base}{_SHRUNK}{int(count) + 1}"
    return f"{name}{_SHRUNK}1"

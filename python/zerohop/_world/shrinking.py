"""The way from a World that has lost ranks to one of those that are left (MPI: ULFM's MPI_Comm_shrink).

All learn that it is over. Each survivor puts a note into the store: that it came, and whom it has lost. The lowest rank that is not
lost waits until every other one has come or is lost, and proposes; if it is lost itself, the next one does. The first proposal counts
for all: the store sets that key once.
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
    """run: its name; empty: the store serves one. Raises Error where the store fails."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._prefix = store, f"{run}/" if run else ""
        self._answers = Answers(store)

    def set(self, key: str, value: bytes) -> None:
        self._call(lambda: self._store.set(self._prefix + key, value))

    def set_once(self, key: str, value: bytes) -> bytes:
        """Unless it has been set. Returns what it holds from then on, for all."""
        return self._call(lambda: set_once(self._store, self._prefix + key, value))

    def get(self, key: str) -> bytes | None:
        """Now; None: nobody has set it yet."""
        return self._call(lambda: peek(self._store, self._prefix + key))

    def get_json(self, key: str) -> object:
        """None also for what is no JSON."""
        try:
            return json.loads(self.get(key) or b"null")
        except ValueError:
            return None

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return self._answers.of(call)
        except Exception as error:
            raise Error(
                f"{self._store!r} does not serve ({type(error).__name__}: {error}): give shrink(store=) one that all who are left "
                "reach, fresh, for this run alone: a directory, say"
            ) from error


# Seconds within which a rank that has died, or hangs, is lost to all that are connected.
_LOST = 5.0
_SILENT = 5.0  # seconds for which a rank that nobody is connected to may not answer


class Survivors:
    """membership: of the World that they are left of."""

    def __init__(self, membership: Membership, store: RunStore) -> None:
        self._membership, self.store = membership, store
        self._key = f"zerohop/{membership.name}/shrink"
        self._noted: list[int] | None = None  # whom this rank has said that it has lost
        self._came: dict[int, set[int]] = {}  # whom each one that has come has lost
        # time.monotonic() since when one who came has been lost to another who came.
        self._doubted: dict[int, float] = {}
        self._silent: dict[int, float] = {}  # time.monotonic() since when a rank has not answered

    def agree(self, deadline: Deadline) -> list[int]:
        """The ranks that go on, in order. Raises PeerLost: without this one; TransferTimeout: one lives, and does not come."""
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
                f"shrink of {membership.name!r}: rank {missing[0]} has not come in time, and is not lost; call again to wait on"
            )
        if self._doubted:
            raise TransferTimeout(
                f"shrink of {membership.name!r}: ranks that came have lost each other, and whether one of them has died is not known yet; "
                "call again to wait on"
            )
        raise TransferTimeout(
            f"shrink of {membership.name!r}: the lowest rank that is left has not decided in time; call again to wait on"
        )

    def _propose(self) -> object:
        """What is decided: another one's proposal, if that came first."""
        proposal = json.dumps(self._who_fit()).encode()
        return json.loads(self.store.set_once(f"{self._key}/decided", proposal))

    def _note(self) -> None:
        lost = self._membership.lost_ranks()
        if lost != self._noted:
            self.store.set(f"{self._key}/{self._membership.rank}", json.dumps(lost).encode())
            self._noted = lost

    def _leads(self, deadline: Deadline) -> bool:
        short = deadline.by_the_way()  # one for all of them
        return not any(self._lives(rank, short) for rank in range(self._membership.rank))

    def _missing(self, deadline: Deadline) -> list[int]:
        """Who has not come, though nobody who goes on has lost it."""
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
        """Whether one who came has lost another whom this rank has not, and who may have died just now: then this rank will know."""
        fit, membership = self._who_fit(), self._membership
        doubted = self._came.keys() - {*fit, *membership.lost_ranks()}
        short, now = deadline.by_the_way(), time.monotonic()
        for rank in fit:
            if doubted and rank != membership.rank:
                membership.lives(rank, short)  # connected, it is watched
        self._doubted = {rank: self._doubted.get(rank, now) for rank in doubted}
        return any(now < since + _LOST for since in self._doubted.values())

    def _lives(self, rank: int, deadline: Deadline) -> bool:
        """Of one without a Peer also that it may live: it has yet to start, or is slow to answer."""
        if not self._membership.lives(rank, deadline):
            return False
        if rank in self._membership.connected():
            self._silent.pop(rank, None)
            return True
        return time.monotonic() < self._silent.setdefault(rank, time.monotonic()) + _SILENT

    def _who_fit(self) -> tuple[int, ...]:
        """Of those who have come: this rank, which all lower ones are lost to, and of two that have lost each other the lower."""
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
                f"shrink of {membership.name!r}: rank {membership.rank} was given up, and the World goes on without it, of what were the "
                f"ranks {', '.join(map(str, decided))}; end this process, or begin anew"
            )
        return decided


class SurvivorsStore:
    """A Store for the next World, which learns here of who is lost before all have met there.

    survivors: ranks of the World before, by their new ones; membership: of that one.
    """

    def __init__(self, store: RunStore, membership: Membership, survivors: list[int]) -> None:
        self.store, self._membership, self._survivors = store, membership, survivors
        self._key = f"zerohop/{membership.name}/shrink/met"
        self._met = False

    def meet(self) -> None:
        """All have met: from here on this rank may leave the World before, which is no loss for those who have not seen it yet."""
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
        # Where the World before is closed here, all of it seem to be lost.
        return membership.is_here and self.store.get(f"{self._key}/{before}") is None

    def __repr__(self) -> str:
        return "what the survivors have told each other"


_SHRUNK = ", shrunk "  # behind the name of a World, before how often that was done


class Shrinking:
    """Of one World. store: in which it was made."""

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
        self._given: Store | str | os.PathLike[str] | None = None  # where those meet
        self._meeting: SurvivorsStore | None = None

    def agree(
        self, deadline: Deadline, store: Store | str | os.PathLike[str] | None
    ) -> tuple[SurvivorsStore, list[int]]:
        """The store of the next World, and which ranks it has. Goes on where a call that timed out has left off."""
        membership = self._membership
        membership.check_open()
        if self._survivors is None or (store is not None and store != self._given):
            self._given = store
            self._survivors = Survivors(membership, self._run_store(store))
            self._tell_of_loss(deadline)
        ranks = self._survivors.agree(deadline)
        self._meeting = SurvivorsStore(self._survivors.store, membership, ranks)
        return self._meeting, ranks

    def meet(self) -> None:
        """All have met in the next World."""
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
                f"the World {self._membership.name!r} has no store in which its survivors could meet (it is of MPI, or of a directory "
                "without file locks): give shrink(store=) a fresh directory, say"
            )
        return RunStore(self._store, run)

    def _tell_of_loss(self, deadline: Deadline) -> None:
        """To those who still wait in a collective or the barrier, perhaps for this rank."""
        ranks = self._membership.lost_ranks()
        lost = self._membership.first_lost(ranks) if ranks else None
        self._barrier.give_up(lost, deadline)
        kind, why = OTHER, "rank"
        if lost is not None:
            kind, why = LOST, f"{self._membership.lost(lost)}, and rank"
        self._ending.declare(Cause(kind, f"{why} {self._membership.rank} has called shrink()"))


def name_behind(name: str) -> str:
    """Of the World that comes behind the one of that name."""
    base, _, count = name.rpartition(_SHRUNK)
    if base and count.isdecimal():
        return f"{base}{_SHRUNK}{int(count) + 1}"
    return f"{name}{_SHRUNK}1"

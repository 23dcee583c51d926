"""The way from a World that has lost ranks to one of those that are left: all learn that it is over, agree, and meet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from zerohop._world.bound import Bound
from zerohop._world.ending import Cause, Ending
from zerohop._world.failure_reports import LOST, OTHER
from zerohop._world.run_store import RunStore
from zerohop._world.store import Store, open_store
from zerohop._world.survivors import Survivors, SurvivorsStore
from zerohop.errors import Error

if TYPE_CHECKING:
    from zerohop._world.barrier import Barrier
    from zerohop._world.membership import Roster

__all__ = ["Shrinking", "name_behind"]

_SHRUNK = ", shrunk "  # behind the name of a World, before how often that was done


class Shrinking:
    """Of one World. store: in which it was made."""

    def __init__(self, roster: Roster, barrier: Barrier, ending: Ending, store: Store) -> None:
        self._roster, self._barrier, self._ending, self._store = roster, barrier, ending, store
        self._survivors: Survivors | None = None
        self._given: Store | str | os.PathLike[str] | None = None  # where those meet
        self._meeting: SurvivorsStore | None = None

    def agree(
        self, bound: Bound, store: Store | str | os.PathLike[str] | None
    ) -> tuple[SurvivorsStore, list[int]]:
        """The store of the next World, and which ranks it has. Goes on where a call that timed out has left off."""
        roster = self._roster
        roster.check_open()
        if self._survivors is None or (store is not None and store != self._given):
            self._given = store
            self._survivors = Survivors(roster, self._run_store(store))
            self._tell_of_loss(bound)
        ranks = self._survivors.agree(bound)
        self._meeting = SurvivorsStore(self._survivors.store, roster, ranks)
        return self._meeting, ranks

    def meet(self) -> None:
        """All have met in the next World."""
        assert self._meeting is not None
        self._meeting.meet()

    def _run_store(self, store: Store | str | os.PathLike[str] | None) -> RunStore:
        from zerohop._world.mpi import GatheredStore

        run = self._roster.run
        if store is not None:
            return RunStore(open_store(store), run or "")
        if isinstance(self._store, SurvivorsStore):
            return self._store.store
        if run is None or isinstance(self._store, GatheredStore):
            raise Error(
                f"the World {self._roster.name!r} has no store in which its survivors could meet (it is of MPI, or of a directory "
                "without file locks): give shrink(store=) a fresh directory, say"
            )
        return RunStore(self._store, run)

    def _tell_of_loss(self, bound: Bound) -> None:
        """To those who still wait in a collective or the barrier, perhaps for this rank."""
        ranks = self._roster.lost_ranks()
        lost = self._roster.first_lost(ranks) if ranks else None
        self._barrier.give_up(lost, bound)
        kind, why = OTHER, "rank"
        if lost is not None:
            kind, why = LOST, f"{self._roster.lost(lost)}, and rank"
        self._ending.declare(Cause(kind, f"{why} {self._roster.rank} has called shrink()"))


def name_behind(name: str) -> str:
    """Of the World that comes behind the one of that name."""
    base, _, count = name.rpartition(_SHRUNK)
    if base and count.isdecimal():
        return f"{base}{_SHRUNK}{int(count) + 1}"
    return f"{name}{_SHRUNK}1"

"""The way from a World that has lost ranks to one of those that are left: all learn that it is over, agree, and meet."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerohop._world.bound import Bound
from zerohop._world.ending import Cause, Ending
from zerohop._world.failure_reports import LOST, OTHER
from zerohop._world.run_store import RunStore
from zerohop._world.store import Store, open_store
from zerohop._world.survivors import Survivors, SurvivorsStore
from zerohop.errors import Error, PeerLost

if TYPE_CHECKING:
    from zerohop._world.barrier import Barrier
    from zerohop._world.membership import Roster
    from zerohop.world import World

__all__ = ["Shrinking"]

_SHRUNK = ", shrunk "  # behind the name of a World, before how often that was done


class Shrinking:
    """Of one World. store: in which it was made; make: the next one, as World() but for this one's options."""

    def __init__(
        self,
        roster: Roster,
        barrier: Barrier,
        ending: Ending,
        store: Store,
        make: Callable[..., World],
    ) -> None:
        self._roster, self._barrier, self._ending = roster, barrier, ending
        self._store, self._make = store, make
        self._survivors: Survivors | None = None
        self._given: Store | str | os.PathLike[str] | None = None  # where those meet
        self._meeting: SurvivorsStore | None = None
        self._next: World | None = None
        self._done = False

    def run(self, bound: Bound, store: Store | str | os.PathLike[str] | None) -> World:
        """As World.shrink(): goes on where a call that timed out has left off."""
        if self._next is None:
            self._next = self._made(bound, store)
        if not self._done:
            self._next = self._met(self._next, bound)
            self._done = True
        return self._next

    def _made(self, bound: Bound, store: Store | str | os.PathLike[str] | None) -> World:
        roster = self._roster
        roster.check_open()
        if self._survivors is None or (store is not None and store != self._given):
            self._given = store
            self._survivors = Survivors(roster, self._run_store(store))
            self._tell_of_loss(bound)
        ranks = self._survivors.agree(bound)
        self._meeting = SurvivorsStore(self._survivors.store, roster, ranks)
        return self._make(
            self._meeting, ranks.index(roster.rank), len(ranks), name=_next_name(roster.name)
        )

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

    def _met(self, world: World, bound: Bound) -> World:
        """All survivors have made it, and live; else those that are left of it shrink it."""
        try:
            world.barrier(bound.left())
        except PeerLost:
            smaller = world.shrink(bound.left())
            world.close()
            return smaller
        assert self._meeting is not None
        self._meeting.meet()
        return world

    def close(self) -> None:
        """A World that the program has not got."""
        if self._next is not None and not self._done:
            self._next.close()


def _next_name(name: str) -> str:
    base, _, count = name.rpartition(_SHRUNK)
    if base and count.isdecimal():
        return f"{base}{_SHRUNK}{int(count) + 1}"
    return f"{name}{_SHRUNK}1"

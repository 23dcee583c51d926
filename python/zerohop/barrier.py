"""The barrier of a World: by notifications, in as many steps as the size has bits.

In step k a rank tells the one 2**k further on that it has come, and waits for the one 2**k before it
(Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988). Behind the last step it has heard of all, at
first or at second hand.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from zerohop.ending import Cause, Ending, Told
from zerohop.errors import Error, PeerLost, TransferTimeout
from zerohop.last_words import MISMATCH

if TYPE_CHECKING:
    from zerohop.bound import Bound
    from zerohop.history import Called
    from zerohop.roster import Roster

__all__ = ["Barrier"]

_STEPS = 32  # more than any size needs: the last one's slot is free
_SLICE = 0.25  # seconds after which a wait looks whether the rank it waits for still lives
# With the digest of what that rank has called below it, or 0: its collectives are over, and it may have called anything.
_ARRIVED = 1 << 31
_DIGEST = _ARRIVED - 1
_LOST = 2  # plus the rank that is lost: whom that one tells need not wait for what does not come
_NOBODY = -1  # in its place: somebody has called shrink()


class Barrier:
    """first_slot: of the SLOTS on every rank's board that are the barrier's."""

    # Two rows, taken in turns: a rank may be one barrier ahead of another, but not two.
    SLOTS = 2 * _STEPS
    FREE = _STEPS - 1  # of them: never used here

    def __init__(self, roster: Roster, first_slot: int, ending: Ending) -> None:
        self._roster, self._first = roster, first_slot
        self._ending, self._history = ending, roster.history
        self._called: Called | None = None  # which one is under way
        self._row = self._step = 0
        self._told = False  # in this step
        self._lost: int | None = None
        self._inside = threading.Lock()

    def wait(self, bound: Bound) -> None:
        if not self._inside.acquire(blocking=False):
            raise RuntimeError(
                "another thread of this rank is in the barrier: one of them is enough"
            )
        try:
            self._go_on(bound)
        finally:
            self._inside.release()

    def give_up(self, lost: int | None, bound: Bound) -> None:
        """For shrink(): that rank was lost elsewhere. Those who wait for this one here learn it, and so do those who come."""
        if not self._inside.acquire(blocking=False):  # that thread learns it by itself
            return
        try:
            if self._lost is None:
                self._lost = _NOBODY if lost is None else lost
                self._warn_others(bound)
        finally:
            self._inside.release()

    def _go_on(self, bound: Bound) -> None:
        """From where a call that timed out has left off."""
        if self._lost is not None:
            raise self._broken()
        self._ending.look()
        refusal = self._ending.refusal(f"barrier of {self._roster.name!r}")
        if refusal is not None and self._ending.mismatch is not None:
            raise refusal
        if self._called is None:
            self._called = self._history.add_barrier()
        while 1 << self._step < self._roster.size:
            try:
                self._tell(bound)
                self._hear(bound)
            except PeerLost:
                self._warn_others(bound)
                raise
            self._step, self._told = self._step + 1, False
        self._row, self._step, self._called = 1 - self._row, 0, None

    def _slot(self, step: int) -> int:
        return self._first + self._row * _STEPS + step

    def _target(self, step: int) -> int:
        return (self._roster.rank + (1 << step)) % self._roster.size

    def _tell(self, bound: Bound) -> None:
        if self._told:
            return
        target = self._target(self._step)
        try:
            peer = self._roster.peer(target, bound)
            peer.notify(self._slot(self._step), _ARRIVED | self._digest())
        except PeerLost as error:
            self._lost = target
            raise self._broken() from error
        self._told = True

    def _hear(self, bound: Bound) -> None:
        source = (self._roster.rank - (1 << self._step)) % self._roster.size
        slot = self._slot(self._step)
        while (value := self._await(slot, source, bound)) == 0:
            if bound.left() == 0:
                raise TransferTimeout(
                    f"barrier of {self._roster.name!r}: rank {source} has not come in time; call again to wait on"
                )
        if value < _ARRIVED:
            self._lost = value - _LOST
            raise self._broken()
        its, own = value & _DIGEST, self._digest()
        if its and own and its != own:
            with suppress(Error):
                peer = self._roster.peer(source, bound.by_the_way())
                if text := self._history.difference(source, peer):
                    raise self._differ(text)
            self._ending.look()
            if self._ending.mismatch is not None:  # it has found it, too, said so and left
                raise self._broken()
            raise self._differ(
                f"rank {source} and rank {self._roster.rank} have made different calls before {self._called}"
            )

    def _digest(self) -> int:
        assert self._called is not None
        return 0 if self._ending.cause is not None else self._called.digest & _DIGEST or 1

    def _differ(self, text: str) -> Exception:
        """What to raise where ranks have made different calls: all of them do."""
        cause = Cause(MISMATCH, text)
        self._ending.declare(cause)
        return cause.error(f"barrier of {self._roster.name!r}")

    def _await(self, slot: int, source: int, bound: Bound) -> int:
        """What came within a slice; 0: nothing, and the source lives. Raises PeerLost."""
        found = self._roster.find_note(slot, 1, min(_SLICE, bound.left()), reset=True)
        if found is not None:
            return found[1]
        self._ending.look()
        if self._ending.mismatch is not None:
            raise self._broken()
        if self._roster.lives(source, bound):
            self._ask(source, bound)
            return 0
        if value := self._roster.endpoint.reset_notify(slot):  # its last words
            return value
        self._lost = source
        raise self._broken()

    def _ask(self, source: int, bound: Bound) -> None:
        """Who does not come may have called something else. Raises ValueError."""
        different = None
        try:
            peer = self._roster.peer(source, bound.by_the_way())
            different = self._ending.difference(source, peer)
        except Told as told:
            if told.cause.kind == MISMATCH:
                different = told.cause.text
        except Error:  # it is lost, or does not answer: whoever waits for it learns that
            return
        if different is not None:
            raise self._differ(different)

    def _broken(self) -> Exception:
        """What to raise: a rank that has told why it cannot go on may be lost by now."""
        self._ending.look()
        if self._ending.mismatch is not None:
            return self._differ(self._ending.mismatch.text)
        assert self._lost is not None
        if self._lost == _NOBODY:
            return PeerLost(
                f"barrier of {self._roster.name!r}: a rank has called shrink(), and without it there is no barrier any more; "
                "shrink() makes a World of those who call it"
            )
        return PeerLost(
            f"barrier of {self._roster.name!r}: {self._roster.lost(self._lost)}, and without it there is no barrier any "
            "more; state() tells who is left, and shrink() makes a World of those"
        )

    def _warn_others(self, bound: Bound) -> None:
        """Those who are still to hear of this rank, so that all learn of the loss."""
        assert self._lost is not None
        self._roster.last_words.pass_on(self._lost)
        short = bound.by_the_way()  # one for all of them
        first = self._step + 1 if self._told else self._step
        for step in range(first, (self._roster.size - 1).bit_length()):
            with suppress(Error):
                self._roster.peer(self._target(step), short).notify(
                    self._slot(step), _LOST + self._lost
                )

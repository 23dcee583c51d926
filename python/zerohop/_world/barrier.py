"""The barrier of a World: handles failures of its steps, which are in C++ (_core.Barrier)."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from zerohop import _core
from zerohop._world.deadline import SLICE, Deadline
from zerohop._world.ending import Cause, EndedElsewhere, Ending
from zerohop._world.failure_reports import MISMATCH
from zerohop._world.membership import who_has
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.membership import Membership

_STEP = 1.0  # seconds between two checks while waiting for a rank that has not started
_NOBODY = -1  # instead of a rank; as the lost rank: a rank has called shrink()


class Barrier:
    def __init__(self, membership: Membership, ending: Ending) -> None:
        self._membership, self._ending, self._history = membership, ending, membership.history
        self._steps = _core.Barrier(
            membership.endpoint,
            self._history.log,
            membership.rank,
            membership.size,
            membership.slots.barrier,
            membership.slots.bell,
            SLICE,
        )
        # The fast path: returns None if the barrier completed within the timeout, else the seconds spent, for wait().
        self.attempt = self._steps.attempt
        self._turns = itertools.count()  # which rank to ask next
        self._lost: int | None = None
        self._over = False

    def join(self) -> bool:
        """For the end of the World: whether no thread is inside; then none gets in any more."""
        self._over = self._over or self._steps.enter()
        return self._over

    def wait(self, timeout: float | None, waited: float) -> None:
        """As World.barrier(). A call after a timeout continues the same barrier.

        waited: the result of attempt().
        """
        begin = time.monotonic() - waited
        if not self._steps.enter():  # first: attempt() may have left this thread inside
            self._membership.check_open()
            raise RuntimeError(
                "another thread of this rank is in the barrier: call it from one thread"
            )
        try:
            self._membership.check_open()
            self._go_on(Deadline(self._membership.bound(timeout), begin))
        finally:
            self._steps.leave()

    def give_up(self, lost: int | None, deadline: Deadline) -> None:
        """For shrink(): that rank was lost elsewhere. Informs ranks that wait for this one here, now or later."""
        if not self._steps.enter():  # that thread notices by itself
            return
        try:
            if self._lost is None:
                self._lose(_NOBODY if lost is None else lost)
                self._warn_others(deadline)
        finally:
            self._steps.leave()

    def _lose(self, rank: int) -> None:
        self._lost = rank
        self._steps.end()

    def _go_on(self, deadline: Deadline) -> None:
        if self._lost is not None:
            raise self._broken()
        try:
            over = self._ending.cause is not None
            found = ("rung", _NOBODY) if over else self._run(deadline.slice)
            while found is not None:
                found = self._answer(*found, deadline)
        except PeerLost:
            if self._lost is not None:
                self._warn_others(deadline)
            raise

    def _answer(self, news: str, rank: int, deadline: Deadline) -> tuple[str, int] | None:
        """The result of continuing the steps."""
        if news == "quiet":
            self._membership.check_open()
            return self._look_around(deadline)
        if news == "rung":
            self._refuse()
        elif news == "unknown":
            return self._connect(rank, deadline)
        elif news == "different":
            self._compare(rank, deadline)
        else:
            if news == "lost":
                rank = self._membership.first_lost([rank, *self._membership.lost_ranks()])
            self._lose(rank)
            raise self._broken()
        return self._run(deadline.slice)

    def _run(self, seconds: float) -> tuple[str, int] | None:
        return self._steps.run(seconds, self._ending.cause is None)

    def _refuse(self) -> None:
        self._ending.look()
        refusal = self._ending.refusal(f"barrier of {self._membership.name!r}")
        if refusal is not None and self._ending.mismatch is not None:
            raise refusal

    def _connect(self, rank: int, deadline: Deadline) -> tuple[str, int] | None:
        """The same. In steps: another rank may be lost, or end the barrier, before that one has started."""
        try:
            peer = self._membership.peer(rank, Deadline(min(_STEP, deadline.left)))
            self._steps.connect(rank, peer, self._membership.slots_at(rank).barrier)
        except TransferTimeout:
            if deadline.passed:
                raise
            return self._look_around(deadline)
        except PeerLost as error:
            self._lose(rank)
            raise self._broken() from error
        return self._run(deadline.slice)

    def _compare(self, rank: int, deadline: Deadline) -> None:
        """Compares the calls of that rank, which differ."""
        with suppress(Error):
            peer = self._membership.peer(rank, deadline.by_the_way())
            if text := self._history.difference(rank, peer):
                raise self._differ(text)
        self._ending.look()
        if self._ending.mismatch is not None:  # it found it, too, reported it and left
            raise self._broken()
        called = f"barrier (number {self._steps.number})"
        raise self._differ(
            f"rank {rank} and rank {self._membership.rank} have made different calls before {called}"
        )

    def _differ(self, text: str) -> Exception:
        """The error if ranks have made different calls; all ranks raise it."""
        cause = Cause(MISMATCH, text)
        self._ending.declare(cause)
        return cause.error(f"barrier of {self._membership.name!r}", self._ending.advice)

    def _look_around(self, deadline: Deadline) -> tuple[str, int] | None:
        """Called when nothing has come for a while. Returns the same as _answer()."""
        self._ending.look()
        if self._ending.mismatch is not None:
            raise self._broken()
        missing = self._steps.missing()
        short = deadline.by_the_way()  # one deadline for all of them, which waits for none to start
        gone = [rank for rank in missing if not self._membership.lives(rank, short)]
        if gone:
            found = self._run(0.0)  # processes their reports
            silent = set(gone).intersection(self._steps.missing())
            if found is None or found[0] not in ("quiet", "unknown") or not silent:
                return found
            self._lose(self._membership.first_lost(sorted(silent)))
            raise self._broken()
        self._ask(missing[next(self._turns) % len(missing)], deadline)
        if deadline.left == 0:
            raise TransferTimeout(
                f"barrier of {self._membership.name!r}: {who_has(missing)} not come in time; call again to continue waiting"
            )
        return self._run(deadline.slice)

    def _ask(self, source: int, deadline: Deadline) -> None:
        """Asks a missing rank whether it has called something else. Raises ValueError."""
        different = None
        try:
            peer = self._membership.peer(source, deadline.by_the_way())
            different = self._ending.difference(source, peer)
        except EndedElsewhere as ended:
            if ended.cause.kind == MISMATCH:
                different = ended.cause.text
        except Error:  # it is lost, or does not answer: the wait for it reports that
            return
        if different is not None:
            raise self._differ(different)

    def _broken(self) -> Exception:
        """The error to raise; a rank that reported why it cannot continue may be lost by now."""
        self._ending.look()
        if self._ending.mismatch is not None:
            return self._differ(self._ending.mismatch.text)
        assert self._lost is not None
        if self._lost == _NOBODY:
            return PeerLost(
                f"barrier of {self._membership.name!r}: a rank has called shrink(); no barrier of this World can complete "
                "any more: shrink() makes a World of the ranks that call it"
            )
        return PeerLost(
            f"barrier of {self._membership.name!r}: {self._membership.lost(self._lost)}; no barrier of this World can "
            f"complete any more: {self._ending.advice.lost}"
        )

    def _warn_others(self, deadline: Deadline) -> None:
        """Notifies the ranks that still expect this one, so that all learn of the loss."""
        assert self._lost is not None
        self._membership.reports.pass_on(self._lost)
        short = deadline.by_the_way()  # one deadline for all of them
        for rank, slot in self._steps.unreported():
            with suppress(Error):
                peer = self._membership.peer(rank, short)
                first = self._membership.slots_at(rank).barrier
                peer.notify(first + slot, _core.Barrier.LOST + self._lost)

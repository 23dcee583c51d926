"""The end of a World's collectives: its cause, and how the other ranks learn of it.

Calls that some ranks have made and others have not cannot be put in order again, so the first failure ends the collectives.
A mismatch of calls ends the barrier, too.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zerohop import _core
from zerohop._world.failure_reports import LATE, LEFT, LOST, MISMATCH
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.advice import Advice
    from zerohop._world.membership import Membership

_READ = 2.0  # seconds to read another rank's cause
_LONGEST = 4096  # bytes of a cause


_ERRORS: dict[str, type[Exception]] = {
    MISMATCH: ValueError,
    LOST: PeerLost,
    LATE: TransferTimeout,
}


class Cause(NamedTuple):
    """Why they ended. kind: LOST, MISMATCH, LATE, or anything else, for which only the text matters."""

    kind: str
    text: str

    def error(self, call: str, advice: Advice) -> Exception:
        """The error of a call that it ends."""
        remedies = {
            MISMATCH: f". The collectives of this {advice.whose} have ended. {advice.after_end}",
            LOST: f"; {advice.lost}",
            LATE: f"; {advice.late}",
        }
        text = f"{call}: {self.text}{remedies.get(self.kind, '')}"
        return _ERRORS.get(self.kind, Error)(text)


class Mismatch(Exception):
    """Ranks have made different calls."""


class EndedElsewhere(Exception):
    """Another rank's collectives have ended, for the cause that it reports."""

    def __init__(self, rank: int, cause: Cause) -> None:
        super().__init__(rank, cause)
        self.rank, self.cause = rank, cause


class Ending:
    """The end of one World's collectives. Thread-safe."""

    def __init__(self, membership: Membership, advice: Advice) -> None:
        self._membership, self.advice = membership, advice
        self._raised = False  # the first call here that a mismatch ends raises ValueError
        self._lock = threading.Lock()  # around changes of the cause; never held while waiting
        self._name = f"collectives of {membership.key!r}, the end"
        self.cause: Cause | None = None
        self._notes: list[
            _core.Memory
        ] = []  # also the earlier one, which another rank may be reading

    def declare(self, cause: Cause) -> None:
        """Called by the call that it ends. The first cause counts, except that a mismatch replaces it, because it ends the barrier, too.

        Notifies connected ranks; others find the cause here from now on.
        """
        self._declare(cause, raised=True)

    def _declare(self, cause: Cause, *, raised: bool) -> None:
        with self._lock:
            news = self.cause is None or (cause.kind == MISMATCH and self.mismatch is None)
            self._raised = raised or (self._raised and not news)
            if not news:
                return
            self.cause = cause
            self._membership.history.log.end()
            with suppress(Error):  # the World is closed: others see that this rank has left
                note = np.frombuffer(json.dumps(cause).encode()[:_LONGEST], np.uint8)
                self._notes.append(self._membership.endpoint.register(note))
                self._membership.share(self._name, self._notes[-1])
        self._membership.reports.send(*cause)

    def look(self) -> None:
        """Checks whether another rank has found a mismatch."""
        if self.mismatch is None and self._membership.reports.rung():
            said = [
                report.text
                for report in self._membership.reports.heard()
                if report.kind == MISMATCH
            ]
            text = said[0] if said else "ranks have made different calls"
            self._declare(Cause(MISMATCH, text), raised=False)

    def check(self) -> None:
        """For a waiting collective. Raises EndedElsewhere."""
        self.look()
        if self.cause is not None:
            raise EndedElsewhere(self._membership.rank, self.cause)

    @property
    def mismatch(self) -> Cause | None:
        """The cause, if it ends the barrier, too."""
        cause = self.cause
        return cause if cause is not None and cause.kind == MISMATCH else None

    def parting_cause(self, rank: int) -> Cause | None:
        """The cause that the rank reported before it left."""
        for report in self._membership.reports.heard():
            if report.rank == rank and report.kind != LEFT:
                return Cause(report.kind, report.text)
        return None

    def refusal(self, call: str) -> Exception | None:
        """The error of a call after the end; None: the collectives have not ended."""
        if self.cause is None:
            return None
        raised, self._raised = self._raised, True
        if not raised and self.cause.kind == MISMATCH:
            return self.cause.error(call, self.advice)
        text = f"{call}: the collectives of this {self.advice.whose} have ended: {self.cause.text}"
        if self.cause.kind == LOST:
            return PeerLost(f"{text}. {self.advice.after_loss}")
        return Error(f"{text}. {self.advice.after_end}")

    def difference(self, rank: int, peer: _core.Peer) -> str | None:
        """As History.difference, while neither rank's collectives have ended: refused calls have no record, but the barrier
        after them has one. Raises EndedElsewhere if that rank's have ended by the time its records are read.
        """
        if self.cause is not None:
            return None
        different = self._membership.history.difference(rank, peer)
        if different is not None and (cause := self.cause_of(peer)) is not None:
            raise EndedElsewhere(rank, cause)
        return different

    def cause_of(self, peer: _core.Peer) -> Cause | None:
        """The cause that the rank has declared, if any."""
        try:
            there = peer[self._name]
        except (KeyError, TransferTimeout):
            return None
        text = np.empty(min(there.nbytes, _LONGEST), np.uint8)
        peer.read(there[: text.nbytes], text).wait(_READ)
        try:
            kind, reason = json.loads(text.tobytes())
        except ValueError:
            return Cause("", f"{peer.name} has given up")
        return Cause(str(kind), str(reason))

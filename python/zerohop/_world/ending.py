"""The end of a World's collectives: why there are no more, and how the other ranks learn of it.

Calls that some ranks have made and others have not cannot be put in order again; so the first that fails is the last. What
ranks have called differently ends the barrier, too.
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
    from zerohop._world.membership import Membership

_READ = 2.0  # seconds for reading what another rank says of it
_LONGEST = 4096  # bytes of that


_ERRORS: dict[str, type[Exception]] = {
    MISMATCH: ValueError,
    LOST: PeerLost,
    LATE: TransferTimeout,
}


class Cause(NamedTuple):
    """What ended them. kind: LOST, MISMATCH, LATE, or anything else, of which only the text matters."""

    kind: str
    text: str

    def error(self, call: str) -> Exception:
        """For a call that it ends."""
        text = f"{call}: {self.text}"
        return _ERRORS.get(self.kind, Error)(text)


class Mismatch(Exception):
    """Ranks have made different calls."""


class Told(Exception):
    """Another rank's collectives are over, for a cause that it says."""

    def __init__(self, rank: int, cause: Cause) -> None:
        super().__init__(rank, cause)
        self.rank, self.cause = rank, cause


class Ending:
    """Any thread."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._raised = (
            False  # here: of a mismatch the first call that it ends says so by a ValueError
        )
        self._lock = threading.Lock()  # around changes of the cause; never held while waiting
        self._name = f"collectives of {membership.name!r}, the end"
        self.cause: Cause | None = None
        self._notes: list[_core.Memory] = []  # the earlier one, too, for somebody may be reading it

    def declare(self, cause: Cause) -> None:
        """By a call that it ends. The first one counts, but for a mismatch, which ends the barrier, too.

        Who is connected is told, and others find it here from now on.
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
            with suppress(Error):  # the World is closed: they see that this rank has left
                note = np.frombuffer(json.dumps(cause).encode()[:_LONGEST], np.uint8)
                self._notes.append(self._membership.endpoint.register(note))
                self._membership.endpoint.share(self._name, self._notes[-1])
        self._membership.reports.tell(*cause)

    def look(self) -> None:
        """Learns whether another rank has found that calls differ."""
        if self.mismatch is None and self._membership.reports.rung():
            said = [
                report.text
                for report in self._membership.reports.heard()
                if report.kind == MISMATCH
            ]
            text = said[0] if said else "ranks have made different calls"
            self._declare(Cause(MISMATCH, text), raised=False)

    def check(self) -> None:
        """For a collective that waits. Raises Told."""
        self.look()
        if self.cause is not None:
            raise Told(self._membership.rank, self.cause)

    @property
    def mismatch(self) -> Cause | None:
        """What ends the barrier, too."""
        cause = self.cause
        return cause if cause is not None and cause.kind == MISMATCH else None

    def said_by(self, rank: int) -> Cause | None:
        """What that rank has told of the end before it left."""
        for report in self._membership.reports.heard():
            if report.rank == rank and report.kind != LEFT:
                return Cause(report.kind, report.text)
        return None

    def refusal(self, call: str) -> Exception | None:
        """What to raise for a call that comes after the end; None: there has been none."""
        if self.cause is None:
            return None
        raised, self._raised = self._raised, True
        if not raised and self.cause.kind == MISMATCH:
            return self.cause.error(call)
        text = f"{call}: the collectives of this World are over: {self.cause.text}"
        if self.cause.kind == LOST:
            return PeerLost(f"{text}. shrink() makes a World of the ranks that are left")
        return Error(f"{text}. Make a World of another name, or shrink() this one")

    def difference(self, rank: int, peer: _core.Peer) -> str | None:
        """As History has it, while neither rank's collectives are over: calls that are refused have no record, but the barrier
        behind them has one. Raises Told: that rank's are, as it says behind the look at its records.
        """
        if self.cause is not None:
            return None
        different = self._membership.history.difference(rank, peer)
        if different is not None and (cause := self.told_by(peer)) is not None:
            raise Told(rank, cause)
        return different

    def told_by(self, peer: _core.Peer) -> Cause | None:
        """What that rank has declared, if it has."""
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

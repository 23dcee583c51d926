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
from zerohop.errors import Error, PeerLost, TransferTimeout
from zerohop.last_words import LEFT, LOST, MISMATCH

if TYPE_CHECKING:
    from zerohop.roster import Roster

__all__ = ["Cause", "Ending", "Mismatch", "Told"]

_READ = 2.0  # seconds for reading what another rank says of it
_LONGEST = 4096  # bytes of that


class Cause(NamedTuple):
    """What ended them. kind: LOST, MISMATCH, or anything else, of which only the text matters."""

    kind: str
    text: str

    def error(self, call: str) -> Exception:
        """For a call that it ends."""
        text = f"{call}: {self.text}"
        if self.kind == MISMATCH:
            return ValueError(text)
        return PeerLost(text) if self.kind == LOST else Error(text)


class Mismatch(Exception):
    """Ranks have made different calls."""


class Told(Exception):
    """Another rank's collectives are over, for a cause that it says."""

    def __init__(self, rank: int, cause: Cause) -> None:
        super().__init__(rank, cause)
        self.rank, self.cause = rank, cause


class Ending:
    """Any thread."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._raised = (
            False  # here: of a mismatch the first call that it ends says so by a ValueError
        )
        self._first = threading.Lock()  # taken once, by the first that declares it
        self._name = f"collectives of {roster.name!r}, the end"
        self.cause: Cause | None = None
        self._note: _core.Memory | None = None

    def declare(self, cause: Cause) -> None:
        """By a call that it ends. The first one counts. Who is connected is told, and others find it here from now on."""
        self._raised = True
        self._declare(cause)

    def _declare(self, cause: Cause) -> None:
        if not self._first.acquire(blocking=False):
            return
        self.cause = cause
        with suppress(Error):  # the World is closed: they see that this rank has left
            note = np.frombuffer(json.dumps(cause).encode()[:_LONGEST], np.uint8)
            self._note = self._roster.endpoint.register(note)
            self._roster.endpoint.share(self._name, self._note)
        self._roster.last_words.tell(*cause)

    def look(self) -> None:
        """Learns whether another rank has found that calls differ."""
        if self.cause is None and self._roster.last_words.rung():
            said = [word.text for word in self._roster.last_words.heard() if word.kind == MISMATCH]
            self._declare(Cause(MISMATCH, said[0] if said else "ranks have made different calls"))

    def check(self) -> None:
        """For a collective that waits. Raises Told."""
        self.look()
        if self.cause is not None:
            raise Told(self._roster.rank, self.cause)

    @property
    def mismatch(self) -> Cause | None:
        """What ends the barrier, too."""
        return self.cause if self.cause is not None and self.cause.kind == MISMATCH else None

    def said_by(self, rank: int) -> Cause | None:
        """What that rank has told of the end before it left."""
        for word in self._roster.last_words.heard():
            if word.rank == rank and word.kind != LEFT:
                return Cause(word.kind, word.text)
        return None

    def refusal(self, call: str) -> Exception | None:
        """What to raise for a call that comes after the end; None: there has been none."""
        if self.cause is None:
            return None
        raised, self._raised = self._raised, True
        if not raised and self.cause.kind == MISMATCH:
            return self.cause.error(call)
        kind = PeerLost if self.cause.kind == LOST else Error
        return kind(
            f"{call}: the collectives of this World are over: {self.cause.text}. Make a World of another name"
        )

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

"""The end of a World's collectives: why there are no more, and how the other ranks learn of it.

Calls that some ranks have made and others have not cannot be put in order again; so the first that fails is the last.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zerohop import _core
from zerohop.errors import Error, PeerLost, TransferTimeout

if TYPE_CHECKING:
    from zerohop.roster import Roster

__all__ = ["Cause", "Ending"]

_READ = 2.0  # seconds for reading what another rank says of it
_LONGEST = 4096  # bytes of that


class Cause(NamedTuple):
    """What ended them. kind: "lost", "mismatch", or anything else, of which only the text matters."""

    kind: str
    text: str

    def error(self, call: str) -> Exception:
        """For a call that it ends."""
        text = f"{call}: {self.text}"
        if self.kind == "mismatch":
            return ValueError(text)
        return PeerLost(text) if self.kind == "lost" else Error(text)


class Ending:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._name = f"collectives of {roster.name!r}, the end"
        self.cause: Cause | None = None
        self._note: _core.Memory | None = None

    def declare(self, cause: Cause) -> None:
        """The first one counts. From now on other ranks find it here."""
        if self.cause is not None:
            return
        self.cause = cause
        with suppress(Error):  # the World is closed: they see that this rank has left
            note = np.frombuffer(json.dumps(cause).encode()[:_LONGEST], np.uint8)
            self._note = self._roster.endpoint.register(note)
            self._roster.endpoint.share(self._name, self._note)

    def refusal(self, call: str) -> Error | None:
        """What to raise for a call that comes after the end; None: there has been none."""
        if self.cause is None:
            return None
        kind = PeerLost if self.cause.kind == "lost" else Error
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

"""One value that the ranks of a World agree upon, by registers in its store: Disk Paxos with one disk.

(Gafni, Lamport: Disk Paxos, Distributed Computing 16, 2003.) Each rank writes its own register and reads all. Whoever dies or
stops in the middle, and whoever proposes at the same time, no two ever decide differently; and who proposes alone decides.
That holds as far as the store gives what was set last to whoever asks next.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from zerohop.answers import Answers
from zerohop.errors import Error
from zerohop.store import Store, peek

__all__ = ["Agreement", "Shelf"]


class Shelf:
    """The keys of one run in a store that may serve others, too. Raises Error where the store fails."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._prefix = store, f"{run}/" if run else ""
        self._answers = Answers(store)

    def set(self, key: str, value: bytes) -> None:
        try:
            self._answers.of(lambda: self._store.set(self._prefix + key, value))
        except Exception as error:
            raise self._failed(error) from error

    def get(self, key: str) -> bytes | None:
        """Now; None: nobody has set it yet."""
        try:
            return self._answers.of(lambda: peek(self._store, self._prefix + key))
        except Exception as error:
            raise self._failed(error) from error

    def get_json(self, key: str) -> object:
        """None also for what is no JSON."""
        try:
            return json.loads(self.get(key) or b"null")
        except ValueError:
            return None

    def _failed(self, error: Exception) -> Error:
        return Error(
            f"{self._store!r} does not serve any more ({type(error).__name__}: {error}): give shrink(store=) one that all who "
            "are left reach, fresh, for this run alone: a directory, say"
        )


class _Register(NamedTuple):
    """Ballots are numbers that no two ranks share; 0: none."""

    promised: int = 0  # the last one that its rank has begun
    accepted: int = 0  # the last one for which it has put the value there
    value: tuple[int, ...] = ()


class Agreement:
    """key: in the shelf, the same for all. rank, size: who this one is of how many that may propose."""

    def __init__(self, shelf: Shelf, key: str, rank: int, size: int) -> None:
        self._shelf, self._key, self._rank, self._size = shelf, key, rank, size
        self._own = _Register()
        self._highest = 0  # ballot that any rank is known to have begun

    def decided(self) -> tuple[int, ...] | None:
        value = self._shelf.get_json(f"{self._key}/decided")
        return tuple(value) if isinstance(value, list) else None

    def propose(self, value: tuple[int, ...]) -> tuple[int, ...] | None:
        """What is decided: an earlier proposal, perhaps. None: another rank proposes, too; try again."""
        ballot = (self._highest // self._size + 1) * self._size + self._rank
        self._write(self._own._replace(promised=ballot))
        seen = self._others(ballot)
        if seen is None:
            return None
        latest = max([*seen, self._own], key=lambda register: register.accepted)
        if latest.accepted:
            value = latest.value
        self._write(_Register(ballot, ballot, value))
        if self._others(ballot) is None:
            return None
        self._shelf.set(f"{self._key}/decided", json.dumps(value).encode())
        return value

    def _write(self, register: _Register) -> None:
        self._own, self._highest = register, max(self._highest, register.promised)
        self._shelf.set(f"{self._key}/ballot/{self._rank}", json.dumps(register).encode())

    def _others(self, ballot: int) -> list[_Register] | None:
        """None: one has begun a later ballot."""
        ranks = (rank for rank in range(self._size) if rank != self._rank)
        seen = [self._read(rank) for rank in ranks]
        self._highest = max([self._highest, *(register.promised for register in seen)])
        return None if self._highest > ballot else seen

    def _read(self, rank: int) -> _Register:
        found = self._shelf.get_json(f"{self._key}/ballot/{rank}")
        if not isinstance(found, list):
            return _Register()
        promised, accepted, value = found
        return _Register(promised, accepted, tuple(value))

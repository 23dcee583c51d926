"""Which entries in a store belong to this run, and which of their ranks are still there."""

from __future__ import annotations

import errno
import os
import secrets
import time
import warnings
from dataclasses import dataclass, replace
from typing import Protocol

from zerohop._world.deadline import looks
from zerohop._world.entries import Entry
from zerohop._world.locks import ByteLocks
from zerohop._world.store import Directory, Store
from zerohop.errors import Error

_GATE = 2**62  # byte that a rank locks while it joins; the bytes of ranks come before it
_OTHERS = 2.0  # seconds to try an address of unknown state
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Lead:
    """What is known of a rank besides its entry."""

    seconds: float  # how long to try its address; 0: it is not there
    lost: bool  # a rank that is not at its address is lost; else a new one may come

    @property
    def sure(self) -> bool:
        """The entry is of this run, not of an earlier one."""
        return self.lost or self.seconds == float("inf")


class Run(Protocol):
    """A rank's part in a run. Thread-safe."""

    @property
    def number(self) -> str | None:
        """The number of the joined run among those of its store; "": it is the only one. None: runs have no numbers."""

    def join(self, rank: int, entry: Entry, timeout: float) -> None: ...
    def amend(self, rank: int, entry: Entry) -> None:
        """Replaces the entry of this rank, which has joined."""

    def look_into(self, rank: int, entry: Entry) -> Lead: ...
    def found(self, rank: int, entry: Entry) -> None:
        """Records that the rank is at its address."""

    def leave(self) -> None: ...


class OnlyRun:
    """A run in a store that serves no other run."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self.number: str | None = ""

    def join(self, rank: int, entry: Entry, timeout: float) -> None:
        self.amend(rank, entry)

    def amend(self, rank: int, entry: Entry) -> None:
        self._store.set(f"{self._prefix}/{rank}", entry.to_bytes())

    def look_into(self, rank: int, entry: Entry) -> Lead:
        return Lead(float("inf"), lost=True)

    def found(self, rank: int, entry: Entry) -> None: ...
    def leave(self) -> None: ...


class DatedRun(OnlyRun):
    """A run in a directory without locks: entries older than the own one may be of an earlier run."""

    def __init__(self, directory: Directory, prefix: str) -> None:
        super().__init__(directory, prefix)
        self._directory = directory
        self.number = None
        self._since = 0.0

    def join(self, rank: int, entry: Entry, timeout: float) -> None:
        super().join(rank, entry, timeout)
        self._since = self._directory.since(f"{self._prefix}/{rank}")

    def look_into(self, rank: int, entry: Entry) -> Lead:
        try:
            since = self._directory.since(f"{self._prefix}/{rank}")
        except KeyError:  # the directory is being cleared
            since = 0.0
        return Lead(_OTHERS, lost=since >= self._since)


class LockedRun:
    """A run in a directory: it lasts as long as any rank has its lock, byte `rank` of one file for all.

    A rank that joins while nobody has a lock begins a new run, and writes its number into that file. So an entry with another
    number is of an earlier run, and one with this number but without a lock is of a rank that was in this run and has ended.
    """

    def __init__(self, directory: Directory, prefix: str, locks: ByteLocks) -> None:
        self._directory, self._prefix, self._locks = directory, prefix, locks
        self._what = f"World {prefix.partition('/')[2]!r} in {directory!r}"
        self.number = ""
        self._warned = False

    def join(self, rank: int, entry: Entry, timeout: float) -> None:
        """Waits for the end of an earlier run that this rank was in. Raises Error, ValueError (another size)."""
        blocked = "other ranks keep joining"
        for _ in looks(time.monotonic() + timeout):
            if not self._locks.take(_GATE):
                continue
            try:
                why = self._join_now(rank, entry)
            finally:
                self._locks.release(_GATE)
            if why is None:
                return
            blocked = why
        raise Error(f"rank {rank} cannot join {self._what}: {blocked}")

    def _join_now(self, rank: int, entry: Entry) -> str | None:
        """Called inside the gate. Why it cannot join yet; None: it has joined."""
        own = self._look(rank)
        if self._locks.taken(rank, 1) is not None:
            raise Error(
                f"rank {rank} of {self._what} is taken, by {_who(own)}: two jobs need two directories; end "
                "that process if it is left over"
            )
        other = self._locks.taken(0, _GATE)
        if other is None:
            self.number = secrets.token_hex(8)
            self._locks.write(self.number.encode())
        else:
            self.number = self._locks.read().decode()
            seen = self._look(other)
            if own is not None and own.run == self.number:
                return (
                    f"it was in a run that rank {other} ({_who(seen)}) is still in; wait until that run ends, or use another "
                    "directory"
                )
            if seen is not None and seen.run == self.number:
                check_size(self._what, rank, entry, other, seen)
        self._locks.take(rank)
        self.amend(rank, entry)
        return None

    def amend(self, rank: int, entry: Entry) -> None:
        self._directory.set(f"{self._prefix}/{rank}", replace(entry, run=self.number).to_bytes())

    def look_into(self, rank: int, entry: Entry) -> Lead:
        current = entry.run == self.number
        if self._locks.taken(rank, 1) is not None:
            # Of another run: its rank is about to replace the entry, or each host has its own locks.
            return Lead(float("inf") if current else _OTHERS, lost=False)
        if entry.of_this_host:
            return Lead(0.0, lost=current)
        return Lead(_OTHERS, lost=current)

    def found(self, rank: int, entry: Entry) -> None:
        if self._warned or self._locks.taken(rank, 1) is not None:
            return
        self._warned = True
        _warn(self._directory, f"of {entry.host} are not seen here")

    def leave(self) -> None:
        self._locks.close()

    def _look(self, rank: int) -> Entry | None:
        try:
            return Entry.from_bytes(self._directory.get(f"{self._prefix}/{rank}"))
        except (KeyError, Error):
            return None


def _who(entry: Entry | None) -> str:
    return "a process that has just started" if entry is None else entry.who


def open_run(store: Store, prefix: str) -> Run:
    if not isinstance(store, Directory):
        return OnlyRun(store, prefix)
    locks = None
    try:
        locks = store.locks(f"{prefix}/lock")
        locks.taken(_GATE, 1)
        return LockedRun(store, prefix, locks)
    except OSError as error:
        if locks is not None:
            locks.close()
        if error.errno not in _NO_LOCKS:
            raise
        _warn(store, f"do not exist: {os.strerror(error.errno)}")
        return DatedRun(store, prefix)


def check_size(what: str, rank: int, entry: Entry, other: int, seen: Entry) -> None:
    if entry.size != seen.size:
        raise ValueError(
            f"{what} has {entry.size} ranks for rank {rank}, and {seen.size} for rank {other} ({seen.who}): start all with "
            "the same size, and use a separate directory or store for each job"
        )


def _warn(directory: Directory, why: str) -> None:
    warnings.warn(
        f"file locks in {directory!r} {why}: entries of another job there, or of a crashed one, cannot be distinguished from "
        "this one's; use a fresh directory for each run",
        RuntimeWarning,
        stacklevel=2,
    )

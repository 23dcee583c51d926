"""Which of the entries in a store are of this run, and whose ranks are still there."""

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

_GATE = 2**62  # byte that a rank has while it joins; those of ranks come before it
_OTHERS = 2.0  # seconds to try an address of which nothing else is known
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Lead:
    """What is known of a rank beside its entry."""

    seconds: float  # that its address is worth trying; 0: it is not there
    lost: bool  # who is not at its address is lost; else one may come who is


class Run(Protocol):
    """A rank's part in a run. Any thread."""

    @property
    def number(self) -> str | None:
        """Of a run that has been joined, among all of its store; nothing: it is the only one. None: it has none."""

    def join(self, rank: int, entry: Entry, timeout: float) -> None: ...
    def amend(self, rank: int, entry: Entry) -> None:
        """Puts it in the place of this rank's, which has joined."""

    def look_into(self, rank: int, entry: Entry) -> Lead: ...
    def found(self, rank: int, entry: Entry) -> None:
        """That rank is at its address."""

    def leave(self) -> None: ...


class OnlyRun:
    """Of a store that serves no other one."""

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
    """Of a directory without locks: what is older than the own entry may be of an earlier run."""

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
        except KeyError:  # somebody clears the directory
            since = 0.0
        return Lead(_OTHERS, lost=since >= self._since)


class LockedRun:
    """Of a directory: a run is as long as any rank has its lock, byte `rank` of one file for all.

    Who joins while nobody has one begins a new run, and writes its number into that file. So what bears another number is
    of an earlier run, and who bears this one and has no lock was in this run and has ended.
    """

    def __init__(self, directory: Directory, prefix: str, locks: ByteLocks) -> None:
        self._directory, self._prefix, self._locks = directory, prefix, locks
        self._what = f"World {prefix.partition('/')[2]!r} in {directory!r}"
        self.number = ""
        self._warned = False

    def join(self, rank: int, entry: Entry, timeout: float) -> None:
        """Waits for an earlier run in which this rank was to end. Raises Error, ValueError (another size)."""
        blocked = "others join all the time"
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
        """Inside the gate. Why not yet; None: it has."""
        own = self._look(rank)
        if self._locks.taken(rank, 1) is not None:
            raise Error(
                f"rank {rank} of {self._what} is taken, by {_who(own)}: of two jobs each needs a directory of its own; end "
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
                    f"it was in the run in which rank {other} ({_who(seen)}) still is; let that one end, or take another "
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
            # Another run's: it is about to replace that entry, or locks of each host are its own.
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
    return "a process that has just come" if entry is None else entry.who


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
            "the same size, and of two jobs each with a directory or store of its own"
        )


def _warn(directory: Directory, why: str) -> None:
    warnings.warn(
        f"file locks in {directory!r} {why}: two jobs at once there, and what a crashed one has left, are not told from "
        "this one; use a fresh directory for each run",
        RuntimeWarning,
        stacklevel=2,
    )

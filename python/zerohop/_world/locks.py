"""Locks on single bytes of a file, which end with the process that holds them, however that ends.

Open file description locks (man 2 fcntl_locking): they belong to an open file, so that threads exclude each other, too.
Nothing is read or written there: bytes that the file does not have can be locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
_TAKEN = (errno.EAGAIN, errno.EACCES)
_open: weakref.WeakSet[ByteLocks] = weakref.WeakSet()


class ByteLocks:
    """One open file. OSError where the file system has no such locks, and (EBADF) once it is closed. Any thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._close = weakref.finalize(self, os.close, self._file)  # twice is once
        self._lock = threading.Lock()  # so that no call uses the number of a file that is closed
        _open.add(self)

    def close(self) -> None:
        """Gives all up; twice is once."""
        with self._lock:
            self._close()

    def leave_to_parent(self) -> None:
        """In a child: no other thread is there, whatever the lock says."""
        self._lock = threading.Lock()
        self._close()

    @property
    def owner(self) -> int:
        """The user whose file it is."""
        with self._opened() as file:
            return os.fstat(file).st_uid

    def take(self, byte: int) -> bool:
        """False: another one has it."""
        try:
            self._ask(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte, 1)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def release(self, byte: int) -> None:
        self._ask(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte, 1)

    def taken(self, begin: int, count: int) -> int | None:
        """One of `count` bytes from `begin` on that another one has; None: nobody else has any."""
        kind, _, start, _, _ = self._ask(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, begin, count)
        return None if kind == fcntl.F_UNLCK else int(start)

    def read(self) -> bytes:
        """What is written in the file, in one line."""
        with self._opened() as file:
            return os.pread(file, 1 << 10, 0)

    def write(self, text: bytes) -> None:
        """Instead of a text that is as long."""
        with self._opened() as file:
            os.pwrite(file, text, 0)

    def _ask(self, call: int, kind: int, begin: int, count: int) -> tuple[int, ...]:
        asked = struct.pack(_FLOCK, kind, os.SEEK_SET, begin, count, 0)
        with self._opened() as file:
            return struct.unpack(_FLOCK, fcntl.fcntl(file, call, asked))

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with self._lock:
            if not self._close.alive:
                raise OSError(errno.EBADF, "the file of these locks is closed")
            yield self._file


def _leave_to_parent() -> None:
    for locks in list(_open):
        locks.leave_to_parent()


# A child would hold them for longer than its parent lives.
os.register_at_fork(after_in_child=_leave_to_parent)

"""Locks on single bytes of a file, which end with their process, however it ends.

These are open file description locks (man 2 fcntl_locking): they belong to an open file, so threads exclude each other, too.
The bytes are not read or written, and need not exist in the file.
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
    """One open file. Raises OSError if the file system has no such locks, and (EBADF) once it is closed. Thread-safe."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._close = weakref.finalize(self, os.close, self._file)  # a second call does nothing
        self._lock = threading.Lock()  # so that no call uses the descriptor of a closed file
        _open.add(self)

    def close(self) -> None:
        """Releases all; a second call does nothing."""
        with self._lock:
            self._close()

    def leave_to_parent(self) -> None:
        """Called in a child: there are no other threads, whatever the lock's state."""
        self._lock = threading.Lock()
        self._close()

    @property
    def owner(self) -> int:
        """The user that owns the file."""
        with self._opened() as file:
            return os.fstat(file).st_uid

    def take(self, byte: int) -> bool:
        """False: another holder has it."""
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
        """One of `count` bytes from `begin` that another holder has; None: there is none."""
        kind, _, start, _, _ = self._ask(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, begin, count)
        return None if kind == fcntl.F_UNLCK else int(start)

    def read(self) -> bytes:
        """The content of the file, one line."""
        with self._opened() as file:
            return os.pread(file, 1 << 10, 0)

    def write(self, text: bytes) -> None:
        """Replaces a text of the same length."""
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


# A child would hold them after its parent has ended.
os.register_at_fork(after_in_child=_leave_to_parent)

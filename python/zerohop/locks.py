"""Locks on single bytes of a file, which end with the process that holds them, however that ends.

Open file description locks (man 2 fcntl_locking): they belong to an open file, so that threads exclude each other, too.
Nothing is read or written there: bytes that the file does not have can be locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import weakref

__all__ = ["ByteLocks"]

_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
_TAKEN = (errno.EAGAIN, errno.EACCES)
_open: weakref.WeakSet[ByteLocks] = weakref.WeakSet()


class ByteLocks:
    """One open file. OSError where the file system has no such locks."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.close = weakref.finalize(self, os.close, self._file)  # gives all up; twice is once
        _open.add(self)

    @property
    def owner(self) -> int:
        """The user whose file it is."""
        return os.fstat(self._file).st_uid

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
        return os.pread(self._file, 1 << 10, 0)

    def write(self, text: bytes) -> None:
        """Instead of a text that is as long."""
        os.pwrite(self._file, text, 0)

    def _ask(self, call: int, kind: int, begin: int, count: int) -> tuple[int, ...]:
        asked = struct.pack(_FLOCK, kind, os.SEEK_SET, begin, count, 0)
        return struct.unpack(_FLOCK, fcntl.fcntl(self._file, call, asked))


def _leave_to_parent() -> None:
    for locks in list(_open):
        locks.close()


# A child would hold them for longer than its parent lives.
os.register_at_fork(after_in_child=_leave_to_parent)

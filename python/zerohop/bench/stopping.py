"""Ensures that processes that are stopped between turns are not left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2); execve keeps it
DIES_WITH_PARENT = (
    sys.executable,
    "-I",
    __file__,
)  # prefix of a command line: the program dies with its parent


def die_with_parent() -> None:
    """Kills this process when its parent dies; a stopped process would not notice, and stay for ever."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


if __name__ == "__main__":
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])

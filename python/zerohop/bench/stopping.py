"""Processes that are stopped while it is not their turn must not be left behind."""

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
)  # before a command line: a program of which this holds


def die_with_parent() -> None:
    """This process is killed when its parent is: one that is stopped would not notice, and stay for ever."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


if __name__ == "__main__":
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])

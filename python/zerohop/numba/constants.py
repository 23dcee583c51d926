"""What calls take and say, as <zerohop/types.h> has it."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["BLOCK", "PATIENCE", "THREAD", "WARP", "Reset", "Status"]

THREAD, WARP, BLOCK = 0, 1, 2
PATIENCE = 2**64 - 1  # as long as the queue was made to wait (Peer.device_queue: timeout)


class Status(IntEnum):
    """How a call went: ``zerohop::device::Status``, whose values the header explains."""

    OK = 0
    TIMED_OUT = 1
    OUT_OF_BOUNDS = 2
    NOT_ALLOWED = 3
    MISALIGNED = 4
    BAD_SLOT = 5
    CLOSED = 6
    FAILED = 7
    CORRUPT = 8


class Reset(IntEnum):
    """What becomes of the value that a wait has found: ``zerohop::device::Reset``."""

    NO = 0
    YES = 1
    ALONE = 2

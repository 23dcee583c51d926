"""The calls of ``<zerohop/device.cuh>`` for kernels that Numba compiles: ``from zerohop import numba as zn``.

Call them inside ``@cuda.jit`` kernels, with ``queue.address`` and ``board.address`` as arguments of the kernel:

>>> @cuda.jit
... def exchange(queue, board, nbytes):
...     zn.put_notify(queue, 0, 0, nbytes, 7, 1, zn.BLOCK)  # all threads of the block, together
...     status, value = zn.wait_notify(board, 7, 10**9, zn.BLOCK)
>>> exchange[1, 256](queue.address, board.address, mine.nbytes)

Each call is made by a THREAD, a WARP or a BLOCK, all of whose threads make it with the same arguments. The team is a constant, so
the kernel contains only its code. The header documents what each call does, its ordering and its results. It
returns a Status; values that the header returns through pointers follow it in a tuple. Offsets and sizes are bytes, times
nanoseconds. Constants are as in <zerohop/types.h>.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from zerohop.numba.foreign import BEGUN, by_type, declare, in_kernels, of_types

__all__ = [
    "BLOCK",
    "PATIENCE",
    "THREAD",
    "WARP",
    "Reset",
    "Status",
    "compare_swap",
    "fetch_add",
    "flush",
    "get",
    "get_ticket",
    "notify",
    "notify_ticket",
    "peek_notify",
    "put",
    "put_notify",
    "put_notify_checked",
    "put_notify_ticket",
    "put_ticket",
    "put_value",
    "put_value_ticket",
    "reset_notify",
    "wait",
    "wait_notify",
    "wait_notify_any",
    "wait_notify_checked",
]

THREAD, WARP, BLOCK = 0, 1, 2
PATIENCE = 2**64 - 1  # the timeout of the queue (Peer.device_queue)


class Status(IntEnum):
    """The result of a call: ``zerohop::device::Status``, whose values the header explains."""

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
    """What a wait does with the value that it finds: ``zerohop::device::Reset``."""

    NO = 0
    YES = 1
    ALONE = 2


_TAKEN = "Tuple((int32, uint32))"  # status, value
_NOTICED = "Tuple((int32, uint32, uint32))"  # status, slot, value
_MOVE = "uint64, uint64, uint64, uint64"  # queue, remote_offset, local_offset, nbytes
_NOTE = "uint32, uint32"  # slot, value
_HOW = "uint64, uint32, uint32"  # nanoseconds, reset, team

_put = declare("put", "int32", f"{_MOVE}, uint32")
_put_ticket = declare("put_ticket", BEGUN, f"{_MOVE}, uint32")
_get = declare("get", "int32", f"{_MOVE}, uint32")
_get_ticket = declare("get_ticket", BEGUN, f"{_MOVE}, uint32")
_notify = declare("notify", "int32", f"uint64, {_NOTE}, uint32")
_notify_ticket = declare("notify_ticket", BEGUN, f"uint64, {_NOTE}, uint32")
_put_notify = declare("put_notify", "int32", f"{_MOVE}, {_NOTE}, uint32")
_put_notify_ticket = declare("put_notify_ticket", BEGUN, f"{_MOVE}, {_NOTE}, uint32")
_put_notify_checked = declare("put_notify_checked", "int32", f"{_MOVE}, uint32, uint32")
_wait = declare("wait", "int32", "uint64, uint32, uint64, uint32")
_flush = declare("flush", "int32", "uint64, uint64, uint32")
_wait_notify_any = declare("wait_notify_any", _NOTICED, f"uint64, uint32, uint32, {_HOW}")
_wait_notify = declare("wait_notify", _TAKEN, f"uint64, uint32, {_HOW}")
_wait_notify_checked = declare(
    "wait_notify_checked", "int32", "uint64, uint32, uint64, uint64, uint64, uint32"
)
_reset_notify = declare("reset_notify", "uint32", "uint64, uint32")
_peek_notify = declare("peek_notify", "uint32", "uint64, uint32")


@in_kernels
def put(queue: int, remote_offset: int, local_offset: int, nbytes: int, team: int = THREAD) -> Any:
    """Copies from the local array into the remote one. Returns a Status."""
    return _put(queue, remote_offset, local_offset, nbytes, team)


@in_kernels
def put_ticket(
    queue: int, remote_offset: int, local_offset: int, nbytes: int, team: int = THREAD
) -> Any:
    """put(); returns (status, ticket), for wait()."""
    return _put_ticket(queue, remote_offset, local_offset, nbytes, team)


@in_kernels
def get(queue: int, remote_offset: int, local_offset: int, nbytes: int, team: int = THREAD) -> Any:
    """Copies from the remote array into the local one. Returns a Status."""
    return _get(queue, remote_offset, local_offset, nbytes, team)


@in_kernels
def get_ticket(
    queue: int, remote_offset: int, local_offset: int, nbytes: int, team: int = THREAD
) -> Any:
    """get(); returns (status, ticket), for wait()."""
    return _get_ticket(queue, remote_offset, local_offset, nbytes, team)


@in_kernels
def notify(queue: int, slot: int, value: int, team: int = THREAD) -> Any:
    """Puts `value`, not 0, into a slot of the Peer, after the team's puts. Returns a Status."""
    return _notify(queue, slot, value, team)


@in_kernels
def notify_ticket(queue: int, slot: int, value: int, team: int = THREAD) -> Any:
    """notify(); returns (status, ticket), for wait()."""
    return _notify_ticket(queue, slot, value, team)


@in_kernels
def put_notify(
    queue: int,
    remote_offset: int,
    local_offset: int,
    nbytes: int,
    slot: int,
    value: int,
    team: int = THREAD,
) -> Any:
    """put() and notify() in one. Returns a Status."""
    return _put_notify(queue, remote_offset, local_offset, nbytes, slot, value, team)


@in_kernels
def put_notify_ticket(
    queue: int,
    remote_offset: int,
    local_offset: int,
    nbytes: int,
    slot: int,
    value: int,
    team: int = THREAD,
) -> Any:
    """put_notify(); returns (status, ticket), for wait()."""
    return _put_notify_ticket(queue, remote_offset, local_offset, nbytes, slot, value, team)


@in_kernels
def put_notify_checked(
    queue: int, remote_offset: int, local_offset: int, nbytes: int, slot: int, team: int = THREAD
) -> Any:
    """put_notify() with the CRC32C of the data as the value. Returns a Status."""
    return _put_notify_checked(queue, remote_offset, local_offset, nbytes, slot, team)


@in_kernels
def wait_notify_checked(
    board: int, slot: int, address: int, nbytes: int, nanoseconds: int, team: int = THREAD
) -> Any:
    """Waits for that, and compares it with the data at an address of this GPU. Returns a Status."""
    return _wait_notify_checked(board, slot, address, nbytes, nanoseconds, team)


@in_kernels
def wait(queue: int, ticket: int, nanoseconds: int = PATIENCE, team: int = THREAD) -> Any:
    """Waits until the operation of the ticket, and all before it, are done. Returns a Status."""
    return _wait(queue, ticket, nanoseconds, team)


@in_kernels
def flush(queue: int, nanoseconds: int = PATIENCE, team: int = THREAD) -> Any:
    """The same for all operations that the team has begun with this queue. Returns a Status."""
    return _flush(queue, nanoseconds, team)


@in_kernels
def wait_notify(
    board: int, slot: int, nanoseconds: int, team: int = THREAD, reset: int = Reset.YES
) -> Any:
    """Waits until a slot is not empty, at most that long (0: one check). Returns (status, value)."""
    return _wait_notify(board, slot, nanoseconds, reset, team)


@in_kernels
def wait_notify_any(
    board: int, first: int, count: int, nanoseconds: int, team: int = THREAD, reset: int = Reset.YES
) -> Any:
    """The same for one of `count` slots from `first`. Returns (status, slot, value)."""
    return _wait_notify_any(board, first, count, nanoseconds, reset, team)


@in_kernels
def reset_notify(board: int, slot: int) -> Any:
    """Empties a slot. Returns its value; 0: it was empty, or another thread took the value."""
    return _reset_notify(board, slot)


@in_kernels
def peek_notify(board: int, slot: int) -> Any:
    """Returns the value of a slot, without changing it; 0: empty."""
    return _peek_notify(board, slot)


_OLD = "Tuple((int32, {0}))"  # status, old
_ELEMENTS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64"
_WORDS = "int32 uint32 int64 uint64"

_put_value = of_types(_ELEMENTS, "put_value", "int32", "uint64, uint64, {0}")
_put_value_ticket = of_types(_ELEMENTS, "put_value_ticket", BEGUN, "uint64, uint64, {0}")
_fetch_add = of_types(_WORDS, "fetch_add", _OLD, "uint64, uint64, {0}")
_compare_swap = of_types(_WORDS, "compare_swap", _OLD, "uint64, uint64, {0}, {0}")


def _only_in_kernels(*_: object) -> Any:
    raise TypeError("calls of zerohop.numba are for kernels: use them inside @cuda.jit functions")


def put_value(queue: int, remote_offset: int, value: Any) -> Any:
    """Puts one element of the value's type, from the calling thread: integers of 8 to 64 bits, float32, float64 (constants
    have 64 bits; ``np.float32(1)``). Returns a Status."""
    return _only_in_kernels(queue, remote_offset, value)


def put_value_ticket(queue: int, remote_offset: int, value: Any) -> Any:
    """put_value(); returns (status, ticket), for wait()."""
    return _only_in_kernels(queue, remote_offset, value)


def fetch_add(queue: int, offset: int, value: Any) -> Any:
    """Adds to a word of the remote array, of the value's type: integers of 32 or 64 bits. Returns (status, old)."""
    return _only_in_kernels(queue, offset, value)


def compare_swap(queue: int, offset: int, expected: Any, desired: Any) -> Any:
    """Sets a word to `desired` if it is `expected`, both of one type as for fetch_add(). Returns (status, old)."""
    return _only_in_kernels(queue, offset, expected, desired)


# For each call the function for the value's type; None: unsupported, and Numba reports the types.


@by_type(put_value)
def _put_value_of(queue: Any, remote_offset: Any, value: Any) -> Any:
    call = _put_value.get(str(value))
    return call and (lambda queue, remote_offset, value: call(queue, remote_offset, value))


@by_type(put_value_ticket)
def _put_value_ticket_of(queue: Any, remote_offset: Any, value: Any) -> Any:
    call = _put_value_ticket.get(str(value))
    return call and (lambda queue, remote_offset, value: call(queue, remote_offset, value))


@by_type(fetch_add)
def _fetch_add_of(queue: Any, offset: Any, value: Any) -> Any:
    call = _fetch_add.get(str(value))
    return call and (lambda queue, offset, value: call(queue, offset, value))


@by_type(compare_swap)
def _compare_swap_of(queue: Any, offset: Any, expected: Any, desired: Any) -> Any:
    call = _compare_swap.get(str(desired)) if expected == desired else None
    return call and (
        lambda queue, offset, expected, desired: call(queue, offset, expected, desired)
    )

"""Calls on one element, by the calling thread: there is one of each for every type that it may have."""

from __future__ import annotations

from typing import Any

from zerohop.numba.foreign import BEGUN, by_type, of_types

__all__ = ["compare_swap", "fetch_add", "put_value", "put_value_ticket"]

_OLD = "Tuple((int32, {0}))"  # status, old
_ELEMENTS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64"
_WORDS = "int32 uint32 int64 uint64"

_put_value = of_types(_ELEMENTS, "put_value", "int32", "uint64, uint64, {0}")
_put_value_ticket = of_types(_ELEMENTS, "put_value_ticket", BEGUN, "uint64, uint64, {0}")
_fetch_add = of_types(_WORDS, "fetch_add", _OLD, "uint64, uint64, {0}")
_compare_swap = of_types(_WORDS, "compare_swap", _OLD, "uint64, uint64, {0}, {0}")


def _only_in_kernels(*_: object) -> Any:
    raise TypeError("a call of zerohop.numba is made by kernels: inside of @cuda.jit functions")


def put_value(queue: int, remote_offset: int, value: Any) -> Any:
    """One element of the value's type, by the calling thread: integers of 8 to 64 bits, float32, float64 (constants
    have 64 bits; ``np.float32(1)``). Returns a Status."""
    return _only_in_kernels(queue, remote_offset, value)


def put_value_ticket(queue: int, remote_offset: int, value: Any) -> Any:
    """put_value(); returns (status, ticket), for wait()."""
    return _only_in_kernels(queue, remote_offset, value)


def fetch_add(queue: int, offset: int, value: Any) -> Any:
    """Adds to a word of the remote array, of the value's type: integers of 32 or 64 bits. Returns (status, old)."""
    return _only_in_kernels(queue, offset, value)


def compare_swap(queue: int, offset: int, expected: Any, desired: Any) -> Any:
    """Sets a word to `desired` where it is `expected`, both of one type as for fetch_add(). Returns (status, old)."""
    return _only_in_kernels(queue, offset, expected, desired)


# Of each the one for the type of the value; None: there is none, and Numba says which types it was called with.


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

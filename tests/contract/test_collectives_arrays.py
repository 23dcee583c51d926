"""Small collectives with every kind of array that NumPy has: those that are read by their fields, and those that are not."""

import sys

import numpy as np
import pytest
from support.attempt import Attempt
from support.ranks import close, results, worlds


class Special(np.ndarray):
    """A subclass may mean anything by its fields."""


def bytes_of(array):
    return np.ascontiguousarray(array).tobytes()


def broadcast(made, arrays):
    return results(
        [Attempt(world.broadcast, array) for world, array in zip(made, arrays, strict=True)]
    )


MAKERS = {
    "of one axis": lambda fill: np.full(6, fill, np.float32),
    "of no axis": lambda fill: np.array(fill, np.int64),
    "bool": lambda fill: np.full(6, fill, np.bool_),
    "complex": lambda fill: np.full(6, fill, np.complex64),
    "a subclass": lambda fill: np.full(6, fill, np.int16).view(Special),
    "of a bytearray": lambda fill: np.frombuffer(bytearray([fill] * 8), np.uint8),
    "empty": lambda fill: np.empty(0, np.int32),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_an_array_of_any_kind_arrives(rank_threads, kind):
    made = worlds(rank_threads, range(2), 2)
    arrays = [MAKERS[kind](fill) for fill in (1, 0)]
    for _ in range(2):
        broadcast(made, arrays)
        assert bytes_of(arrays[1]) == bytes_of(arrays[0])
    close(made)


REFUSED = {
    "of another byte order": np.zeros(6, ">i4"),
    "of a longer float than others have": np.zeros(6, np.longdouble),
    "of fields": np.zeros(6, [("a", np.int32)]),
    "of objects": np.array([None] * 6),
    "of dates": np.zeros(6, "M8[s]"),
    "with gaps": np.zeros(12, np.int32)[::2],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_given_back_and_changes_nothing(rank_threads, kind):
    made = worlds(rank_threads, range(2), 2)
    arrays = [np.full(6, fill, np.int32) for fill in (1, 0)]
    broadcast(made, arrays)
    refused, count = REFUSED[kind], sys.getrefcount(REFUSED[kind])
    with pytest.raises((TypeError, ValueError)):
        made[0].broadcast(refused)
    assert sys.getrefcount(refused) == count
    arrays[1][:] = 0
    broadcast(made, arrays)
    assert arrays[1].tolist() == [1] * 6
    close(made)


def test_arrays_are_the_programs_own_again_when_a_call_has_ended(rank_threads):
    made = worlds(rank_threads, range(2), 2)
    lent = [bytearray([fill] * 8) for fill in (1, 0)]
    arrays = [np.full(6, fill, np.int32) for fill in (1, 0)]
    counts = [sys.getrefcount(array) for array in arrays]
    for _ in range(2):
        broadcast(made, lent)
        broadcast(made, arrays)
    for buffer in lent:
        buffer.extend(b"more")  # BufferError while it is lent
    assert lent[1] == lent[0]
    assert [sys.getrefcount(array) for array in arrays] == counts
    close(made)

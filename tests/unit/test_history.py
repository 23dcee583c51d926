"""What ranks have called, as others read it: the first difference is named, and nothing else is taken for one."""

from types import SimpleNamespace

import numpy as np
import pytest
import zerohop as zh
from zerohop import _core
from zerohop._world.history import NO_ROOT, Common, History, amount


class FakeEndpoint:
    """What it shares a FakePeer reads."""

    def __init__(self):
        self.shared = {}

    def empty(self, nbytes):
        return np.zeros(nbytes, np.uint8)

    def share(self, name, memory):
        self.shared[name] = memory


class FakePeer:
    def __init__(self, endpoint):
        self._endpoint = endpoint

    def lookup(self, name, timeout):
        try:
            return self._endpoint.shared[name]
        except KeyError:
            raise zh.TransferTimeout("not yet") from None

    def read(self, source, target):
        target[:] = source
        return SimpleNamespace(wait=lambda timeout: None)


@pytest.fixture
def pair():
    """The histories of rank 0 and rank 1, and the way from the one to the other."""
    ends = [FakeEndpoint() for _ in range(2)]
    made = [History(end, "w", rank, 2) for rank, end in enumerate(ends)]
    return made[0], made[1], FakePeer(ends[1])


def call(history, kind="broadcast", root=0, nbytes=8, dtype="int64", *fold):
    return history.add(kind, Common(root, nbytes, dtype, *fold))


def test_equal_calls_have_no_difference(pair):
    first, second, peer = pair
    for _ in range(199):
        assert call(first).digest == call(second).digest
        assert first.difference(1, peer) is None
    call(first)  # one rank may be ahead
    assert first.difference(1, peer) is None
    for _ in range(100):
        call(second)
    assert first.difference(1, peer) is None  # even if no record is common to both


def test_a_difference_of_long_ago_is_reported_as_one(pair):
    first, second, peer = pair
    call(first, root=1)
    call(second)
    for _ in range(198):
        call(first)
        call(second)
    assert "after calls that were not the same" in first.difference(1, peer)


def test_what_is_no_record_is_passed_over(pair):
    first, second, peer = pair
    call(first)
    call(second, root=1)
    [records] = peer._endpoint.shared.values()
    records[records.nonzero()[0][-1]] ^= 1  # it is being written
    assert first.difference(1, peer) is None
    peer._endpoint.shared.clear()  # nor is it there at all
    assert first.difference(1, peer) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (
            ("sum", 1.0),
            ("max", 1.0),
            "all_reduce (call 1, max) with 1 element of float64 (8 bytes)",
        ),
        (("premul_sum", 2.0), ("premul_sum", 3.0), "or with another factor="),
    ],
)
def test_another_operation_is_a_difference(pair, ours, theirs, words):
    first, second, peer = pair
    for history, (op, factor) in ((first, ours), (second, theirs)):
        call(history, "all_reduce", NO_ROOT, 8, "float64", _core.OPS.index(op), factor)
    assert words in first.difference(1, peer)


@pytest.mark.parametrize(
    ("nbytes", "dtype", "text"),
    [
        (4096, "float32", "1024 elements of float32 (4096 bytes)"),
        (2, "bfloat16", "1 element of bfloat16 (2 bytes)"),
        (32, "complex128", "2 elements of complex128 (32 bytes)"),
        (7, "uint8", "7 bytes of uint8"),
        (7, "bool", "7 bytes of bool"),
        (7, "float8_e4m3fn", "7 bytes of float8_e4m3fn"),
        (7, "int16", "7 bytes of int16"),
    ],
)
def test_a_size_in_elements_and_bytes(nbytes, dtype, text):
    assert amount(nbytes, dtype) == text

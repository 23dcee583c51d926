"""Lists of pages: write_pages and read_pages move what indexing by arrays of integers would."""

from __future__ import annotations

import array as arrays
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.dlpack import CUDA, Producer
from support.keeper import Keeper, keep

COUNT, THERE = 40, 50  # pages of the source, of the destination
VALUES = np.arange(COUNT * 6 * 5, dtype=np.float32).reshape(COUNT, 6, 5)
POISON = np.float32(-7)


def poisoned(count: int = THERE) -> np.ndarray:
    return np.full((count, 6, 5), POISON)


def some(count: int, size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(size)[:count]


def expected(source: np.ndarray, source_pages: Any, target: np.ndarray, target_pages: Any) -> Any:
    result = target.copy()
    result[target_pages] = source[source_pages]
    return result


@pytest.mark.parametrize("count", [1, 7, COUNT])
def test_pages_go_where_the_indices_say(remote, kind, by_device, count):
    ours, theirs = some(count, COUNT, 1), some(count, THERE, 2)
    with remote(keep) as s:
        keeper = Keeper(s.link)
        memory, view = array(s.ep, kind, VALUES)
        target = keeper.array(kind, poisoned())
        transfer = s.peer.write_pages(memory, target.remote, ours, theirs)
        transfer.wait()
        assert transfer.nbytes == count * VALUES[0].nbytes
        assert transfer.route.kind == ("p2p" if remote.p2p else by_device)
        now = expected(VALUES, ours, poisoned(), theirs)
        np.testing.assert_array_equal(target.show(), now)
        view[...] = POISON
        s.peer.read_pages(target.remote, memory, theirs, ours).wait()
        np.testing.assert_array_equal(view, expected(now, theirs, poisoned(COUNT), ours))
        keeper.end()


STRIDED = {
    "every second page": (np.s_[::2], np.s_[::2]),
    "reversed": (np.s_[::-1], np.s_[3:]),
    "a column of each": (np.s_[:, :, 1], np.s_[:, :, 3]),
    "columns and steps": (np.s_[::-2, ::2, 1:4], np.s_[::2, 1::2, :3]),
    "a page is one element": (np.s_[:, 2, 2], np.s_[:, 4, 0]),
    "the first axis is another": (np.s_[3], np.s_[4]),
}


@pytest.mark.parametrize("name", STRIDED)
def test_pages_of_strided_memory(remote, kind, name):
    here, there = STRIDED[name]
    source, target_view = VALUES[here], poisoned()[there]
    ours = some(6, len(source), 3)
    theirs = some(6, len(target_view), 4)
    with remote(keep) as s:
        keeper = Keeper(s.link)
        memory, view = array(s.ep, kind, VALUES)
        target = keeper.array(kind, poisoned())
        s.peer.write_pages(memory[here], target.remote[there], ours, theirs).wait()
        wanted = poisoned()
        wanted[there][theirs] = source[ours]
        np.testing.assert_array_equal(target.show(), wanted)
        view[...] = POISON
        s.peer.read_pages(target.remote[there], memory[here], theirs, ours).wait()
        back = poisoned(COUNT)
        back[here][ours] = wanted[there][theirs]
        np.testing.assert_array_equal(view, back)
        keeper.end()


def test_many_pages_at_once(remote):
    """More than any queue is deep, and than is copied in the call."""
    count = 5000
    values = np.random.default_rng(7).random((count, 64))
    ours, theirs = some(count, count, 8), some(count, count, 9)
    with remote(keep) as s:
        keeper = Keeper(s.link)
        memory, view = array(s.ep, "numpy", values)
        target = keeper.array("empty", np.zeros((count, 64)))
        transfers = [s.peer.write_pages(memory, target.remote, ours, theirs) for _ in range(3)]
        del ours
        for transfer in transfers:
            transfer.wait()
        wanted = np.zeros_like(values)
        wanted[theirs] = values[some(count, count, 8)]
        np.testing.assert_array_equal(target.show(), wanted)
        view[...] = 0
        s.peer.read_pages(target.remote, memory, None, None).wait()
        np.testing.assert_array_equal(view, wanted)
        keeper.end()


def told(ep, peer, link):
    target, view = array(ep, "empty", np.zeros((8, 1000), np.int64))
    link.send(target.remote)
    for value in range(1, 51):
        assert ep.wait_notify(3) == value
        assert (np.asarray(view)[[1, 3, 7]] == value).all(), "the notification came first"
        peer.notify(4, value).wait()


def test_a_notification_follows_the_last_page(remote):
    with remote(told) as s:
        far = s.link.recv()
        memory, view = array(s.ep, "numpy", np.zeros((8, 1000), np.int64))
        for value in range(1, 51):
            view[...] = value
            transfer = s.peer.write_pages(memory, far, [0, 5, 2], [7, 1, 3], notify=(3, value))
            assert s.ep.wait_notify(4) == value
            transfer.wait()


PAGES = [7, 0, 33, 12]
FORMS = {
    "list": list,
    "tuple": tuple,
    "int32": lambda pages: np.array(pages, np.int32),
    "int64": lambda pages: np.array(pages, np.int64),
    "uint32": lambda pages: np.array(pages, np.uint32),
    "uint64": lambda pages: np.array(pages, np.uint64),
    "strided": lambda pages: np.repeat(np.array(pages), 3)[::3],
    "reversed": lambda pages: np.array(pages[::-1], np.int32)[::-1],
    "read-only": lambda pages: np.frombuffer(np.array(pages).tobytes(), np.int64),
    "unaligned": lambda pages: np.frombuffer(bytearray(b"x" + np.array(pages).tobytes()), np.uint8)[
        1:
    ].view(np.int64),
    "array.array": lambda pages: arrays.array("q", pages),
    "memoryview": lambda pages: memoryview(arrays.array("i", pages)),
    "ints of NumPy": lambda pages: [np.int16(page) for page in pages],
}


@pytest.mark.parametrize("form", FORMS)
def test_indices_of_every_form(thread, form):
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", VALUES)
        target = keeper.array("numpy", poisoned())
        make = FORMS[form]
        s.peer.write_pages(memory, target.remote, make(PAGES), make(PAGES[::-1])).wait()
        wanted = expected(VALUES, PAGES, poisoned(), PAGES[::-1])
        np.testing.assert_array_equal(target.show(), wanted)
        keeper.end()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_of_torch(thread, dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", VALUES)
        target = keeper.array("numpy", poisoned())
        ours = torch.tensor(PAGES, dtype=getattr(torch, dtype))
        theirs = torch.tensor([PAGES, PAGES[::-1]], dtype=getattr(torch, dtype)).T[:, 1]
        s.peer.write_pages(memory, target.remote, ours, theirs).wait()
        wanted = expected(VALUES, PAGES, poisoned(), PAGES[::-1])
        np.testing.assert_array_equal(target.show(), wanted)
        keeper.end()


def test_none_and_ranges(thread):
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", VALUES)
        target = keeper.array("numpy", poisoned())
        for ours, theirs in [
            (None, range(10, THERE)),
            (range(0, COUNT, 4), range(9, -1, -1)),
            (range(COUNT), range(COUNT)),
            (range(0), []),
        ]:
            before = target.show()
            s.peer.write_pages(memory, target.remote, ours, theirs).wait()
            pages = slice(None) if ours is None else list(ours)
            wanted = expected(VALUES, pages, before, list(theirs)) if len(theirs) else before
            np.testing.assert_array_equal(target.show(), wanted)
        s.peer.write_pages(memory, target.remote[:COUNT], None, None).wait()
        np.testing.assert_array_equal(target.show()[:COUNT], VALUES)
        keeper.end()


def test_no_pages_are_a_notification_alone(remote):
    with remote(told_at_once) as s:
        far = s.link.recv()
        empty = np.array([], np.int64)
        for count in (0, 4):
            memory, _ = array(s.ep, "numpy", np.zeros((count, 3)))
            transfer = s.peer.write_pages(memory, far, empty, [], notify=(3, count + 1))
            transfer.wait()
            assert transfer.nbytes == 0
            assert s.ep.wait_notify(4) == count + 1
        hollow, _ = array(s.ep, "numpy", np.zeros((4, 0)))
        s.peer.write_pages(hollow, far[:, :0], [3, 1], [0, 1], notify=(3, 9)).wait()
        assert s.ep.wait_notify(4) == 9


def told_at_once(ep, peer, link):
    target, _ = array(ep, "empty", np.zeros((4, 3)))
    link.send(target.remote)
    for value in (1, 5, 9):
        assert ep.wait_notify(3) == value
        peer.notify(4, value).wait()


OUT_OF_RANGE = {
    "negative": ([0, -1, 2], r"source_pages\[1\] is -1, and the source has 40 pages: give 0 to 39"),
    "too large": (np.array([0, 1, 40]), r"source_pages\[2\] is 40, .* 40 pages"),
    "negative int32": (np.array([-5, 1, 1], np.int32), r"source_pages\[0\] is -5, "),
    "large uint32": (np.array([1, 2**32 - 1, 1], np.uint32), r"source_pages\[1\] is 4294967295, "),
    "large uint64": (np.array([1, 2**64 - 1, 1], np.uint64), r"\[1\] is 18446744073709551615"),
    "beyond 64 bits": ([1, 2, 1 << 70], r"source_pages\[2\] is "),
    "far below": ([-(1 << 70), 2, 1], r"source_pages\[0\] is -"),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_is_named_with_the_bound(thread, name):
    pages, words = OUT_OF_RANGE[name]
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, view = array(s.ep, "numpy", VALUES)
        target = keeper.array("numpy", poisoned(COUNT))
        with pytest.raises(IndexError, match=words):
            s.peer.write_pages(memory, target.remote, pages, [0, 1, 2])
        theirs = words.replace("source", "destination")
        with pytest.raises(IndexError, match=theirs):
            s.peer.write_pages(memory, target.remote, [0, 1, 2], pages)
        with pytest.raises(IndexError, match=words):
            s.peer.read_pages(target.remote, memory, pages, [0, 1, 2])
        with pytest.raises(IndexError, match=theirs):
            s.peer.read_pages(target.remote, memory, [0, 1, 2], pages)
        np.testing.assert_array_equal(target.show(), poisoned(COUNT))
        np.testing.assert_array_equal(view, VALUES)
        keeper.end()


WRONG = {
    "floats": (np.array([0.0, 1.0]), TypeError, r"source_pages must be an array of .*float64"),
    "bytes": (b"01", TypeError, r"source_pages must be an array of .*uint8"),
    "bools": (np.array([True, False]), TypeError, r"source_pages must be .*bool"),
    "small ints": (np.array([0, 1], np.int16), TypeError, r"source_pages must be .*int16"),
    "two axes": (
        np.array([[0], [1]]),
        ValueError,
        r"source_pages must have one axis, not .*\(2, 1\)",
    ),
    "no axis": (np.array(1), ValueError, r"source_pages must have one axis, not the shape \(\)"),
    "a float": ([0, 1.0], TypeError, r"source_pages\[1\] must be an int, not a float"),
    "a bool": ([0, True], TypeError, r"source_pages\[1\] must be an int, not a bool"),
    "text": ("01", TypeError, r"source_pages must be an array .*, not a str"),
    "an int": (1, TypeError, r"source_pages must be an array .*, not an int"),
    "a set": ({0, 1}, TypeError, r"source_pages must be an array .*, not a set"),
    "more": ([0, 1, 2], ValueError, "3 source_pages and 2 destination_pages"),
    "fewer": (range(1), ValueError, "1 source_pages and 2 destination_pages"),
    "all": (None, ValueError, "40 source_pages and 2 destination_pages"),
}


@pytest.mark.parametrize("name", WRONG)
def test_indices_that_are_none_are_refused(thread, name):
    pages, error, words = WRONG[name]
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", VALUES)
        target = keeper.array("numpy", poisoned())
        with pytest.raises(error, match=words):
            s.peer.write_pages(memory, target.remote, pages, [0, 1])
        assert (target.show() == POISON).all()
        keeper.end()


def test_indices_on_a_gpu_are_refused_with_the_remedy(thread):
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", VALUES)
        target = keeper.array("numpy", poisoned())
        on_gpu = Producer(1 << 20, (2,), code=0, bits=64, device_type=CUDA)
        with pytest.raises(TypeError, match=r"destination_pages lies on cuda:0, .*\.cpu\(\)"):
            s.peer.write_pages(memory, target.remote, [0, 1], on_gpu)
        keeper.end()


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ((4, 3), (4, 5), r"source are \(3,\) of float64 and .* destination \(5,\) of float64"),
        ((4, 3), (4, 3, 1), r"source are \(3,\) of float64 and .* destination \(3, 1\)"),
        ((4,), (), "the destination has no first axis"),
        ((), (4,), "the source has no first axis"),
    ],
)
def test_pages_must_be_equal(thread, ours, theirs, words):
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", np.ones(ours))
        target = keeper.array("numpy", np.zeros(theirs))
        with pytest.raises(ValueError, match=words):
            s.peer.write_pages(memory, target.remote, [], [])
        other, _ = array(s.ep, "numpy", np.ones((4, 3), np.float32))
        wide = keeper.array("numpy", np.zeros((4, 3)))
        with pytest.raises(ValueError, match=r"\(3,\) of float32 and .* \(3,\) of float64"):
            s.peer.write_pages(other, wide.remote, [0], [0])
        assert not target.show().any()
        keeper.end()


def test_rights_are_kept(thread):
    fixed = VALUES.copy()
    fixed.flags.writeable = False
    with thread(keep) as s:
        keeper = Keeper(s.link)
        memory = s.ep.register(fixed)
        target = keeper.array("numpy", poisoned())
        s.peer.write_pages(memory, target.remote, [1], [2]).wait()
        with pytest.raises(ValueError, match="read-only"):
            s.peer.read_pages(target.remote, memory, [2], [1])
        memory.close()
        with pytest.raises(zh.RegistrationError, match="closed"):
            s.peer.write_pages(memory, target.remote, [1], [2])
        with pytest.raises(TypeError, match=r"destination must be a RemoteMemory"):
            s.peer.write_pages(VALUES, VALUES, [1], [2])
        with pytest.raises(zh.RouteUnavailable, match="gpudirect"):
            s.peer.write_pages(VALUES, target.remote, [1], [2], require="gpudirect")
        keeper.end()


def test_memory_that_its_owner_has_closed_is_refused(remote):
    with remote(keep) as s:
        keeper = Keeper(s.link)
        memory, _ = array(s.ep, "numpy", VALUES)
        target = keeper.array("empty", poisoned())
        s.peer.write_pages(memory, target.remote, [1, 4], [2, 3]).wait()
        target.revoke()
        with pytest.raises(zh.VerbsError):
            s.peer.write_pages(memory, target.remote, [1, 4], [2, 3]).wait()
        keeper.end()

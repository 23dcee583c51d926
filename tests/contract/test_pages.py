"""Lists of pages: write_pages and read_pages move what indexing by arrays of integers would."""

import array as arrays
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.dlpack import CUDA, Producer
from support.keeper import keep

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
        memory, view = array(s.ep, kind, VALUES)
        target = s.keeper.array(kind, poisoned())
        transfer = s.peer.write_pages(memory, target.remote, ours, theirs)
        transfer.wait()
        assert transfer.nbytes == count * VALUES[0].nbytes
        assert transfer.route.kind == ("p2p" if remote.p2p else by_device)
        now = expected(VALUES, ours, poisoned(), theirs)
        np.testing.assert_array_equal(target.show(), now)
        view[...] = POISON
        s.peer.read_pages(target.remote, memory, theirs, ours).wait()
        np.testing.assert_array_equal(view, expected(now, theirs, poisoned(COUNT), ours))


STRIDED = {
    "every second page": (np.s_[::2], np.s_[::2]),
    "reversed": (np.s_[::-1], np.s_[3:]),
    "a column of each": (np.s_[:, :, 1], np.s_[:, :, 3]),
    "columns and steps": (np.s_[::-2, ::2, 1:4], np.s_[::2, 1::2, :3]),
    "a page is one element": (np.s_[:, 2, 2], np.s_[:, 4, 0]),
    "the first axis is another": (np.s_[3], np.s_[4]),
}


def test_pages_of_strided_memory(remote, kind):
    with remote(keep) as s:
        for name, (here, there) in STRIDED.items():
            source, target_view = VALUES[here], poisoned()[there]
            ours, theirs = some(6, len(source), 3), some(6, len(target_view), 4)
            memory, view = array(s.ep, kind, VALUES)
            target = s.keeper.array(kind, poisoned())
            s.peer.write_pages(memory[here], target.remote[there], ours, theirs).wait()
            wanted = poisoned()
            wanted[there][theirs] = source[ours]
            np.testing.assert_array_equal(target.show(), wanted, name)
            view[...] = POISON
            s.peer.read_pages(target.remote[there], memory[here], theirs, ours).wait()
            back = poisoned(COUNT)
            back[here][ours] = wanted[there][theirs]
            np.testing.assert_array_equal(view, back, name)


def test_many_pages_at_once(remote):
    """More than any queue is deep, and than is copied in the call."""
    count = 5000
    values = np.random.default_rng(7).random((count, 64))
    ours, theirs = some(count, count, 8), some(count, count, 9)
    with remote(keep) as s:
        memory, view = array(s.ep, "numpy", values)
        target = s.keeper.array("empty", np.zeros((count, 64)))
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


def served(ep, peer, link):
    target, view = array(ep, "empty", np.zeros((8, 1000), np.int64))
    link.send(target.remote)
    for value in range(1, 51):
        assert ep.wait_notify(3) == value
        assert (np.asarray(view)[[1, 3, 7]] == value).all(), "the notification came first"
        peer.notify(4, value).wait()


def test_a_notification_follows_the_last_page(remote):
    with remote(served) as s:
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
    "uint64": lambda pages: np.array(pages, np.uint64),
    "strided": lambda pages: np.repeat(np.array(pages), 3)[::3],
    "reversed": lambda pages: np.array(pages[::-1], np.int32)[::-1],
    "read-only": lambda pages: np.frombuffer(np.array(pages).tobytes(), np.int64),
    "unaligned": lambda pages: np.frombuffer(b"x" + np.array(pages).tobytes(), "u1")[1:].view("i8"),
    "array.array": lambda pages: arrays.array("q", pages),
    "memoryview": lambda pages: memoryview(arrays.array("i", pages)),
    "ints of NumPy": lambda pages: [np.int16(page) for page in pages],
}


def check_forms(s, forms):
    memory, _ = array(s.ep, "numpy", VALUES)
    wanted = expected(VALUES, PAGES, poisoned(), PAGES[::-1])
    for name, form in forms.items():
        target = s.keeper.array("numpy", poisoned())
        s.peer.write_pages(memory, target.remote, form(PAGES), form(PAGES[::-1])).wait()
        np.testing.assert_array_equal(target.show(), wanted, name)


def test_indices_of_every_form(thread):
    with thread(keep) as s:
        check_forms(s, FORMS)


def test_indices_of_torch(thread):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    forms = {
        "int32": lambda pages: torch.tensor(pages, dtype=torch.int32),
        "a column": lambda pages: torch.tensor([pages, pages]).T[:, 1],
    }
    with thread(keep) as s:
        check_forms(s, forms)


def test_none_and_ranges(thread):
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", VALUES)
        target = s.keeper.array("numpy", poisoned())
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


def test_no_pages_are_a_notification_alone(remote):
    with remote(reported_at_once) as s:
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


def reported_at_once(ep, peer, link):
    target, _ = array(ep, "empty", np.zeros((4, 3)))
    link.send(target.remote)
    for value in (1, 5, 9):
        assert ep.wait_notify(3) == value
        peer.notify(4, value).wait()


OUT_OF_RANGE = [
    ([0, -1, 2], r"source_pages\[1\] is -1, and the source has 40 pages: give 0 to 39"),
    (np.array([0, 1, 40]), r"source_pages\[2\] is 40, .* 40 pages"),
    (np.array([-5, 1, 1], np.int32), r"source_pages\[0\] is -5, "),
    (np.array([1, 2**32 - 1, 1], np.uint32), r"source_pages\[1\] is 4294967295, "),
    (np.array([1, 2**64 - 1, 1], np.uint64), r"\[1\] is 18446744073709551615"),
    ([-(1 << 70), 2, 1], r"source_pages\[0\] is -"),
]


def test_an_index_out_of_range_is_named_with_the_bound(thread):
    good = [0, 1, 2]
    with thread(keep) as s:
        memory, view = array(s.ep, "numpy", VALUES)
        target = s.keeper.array("numpy", poisoned(COUNT))
        for pages, words in OUT_OF_RANGE:
            for move, pair in (
                (s.peer.write_pages, (memory, target.remote)),
                (s.peer.read_pages, (target.remote, memory)),
            ):
                with pytest.raises(IndexError, match=words):
                    move(*pair, pages, good)
                with pytest.raises(IndexError, match=words.replace("source", "destination")):
                    move(*pair, good, pages)
        np.testing.assert_array_equal(target.show(), poisoned(COUNT))
        np.testing.assert_array_equal(view, VALUES)


WRONG = [
    (np.array([0.0, 1.0]), TypeError, r"source_pages must be an array of .*float64"),
    (b"01", TypeError, r"source_pages must be an array of .*uint8"),
    (np.array([True, False]), TypeError, r"source_pages must be .*bool"),
    (np.array([[0], [1]]), ValueError, r"source_pages must have one axis, not .*\(2, 1\)"),
    ([0, 1.0], TypeError, r"source_pages\[1\] must be an int, not a float"),
    ([0, True], TypeError, r"source_pages\[1\] must be an int, not a bool"),
    ({0, 1}, TypeError, r"source_pages must be an array .*, not a set"),
    ([0, 1, 2], ValueError, "3 source_pages and 2 destination_pages"),
    (None, ValueError, "40 source_pages and 2 destination_pages"),
]


def test_indices_that_are_none_are_refused(thread):
    on_gpu = Producer(1 << 20, (2,), code=0, bits=64, device_type=CUDA)
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", VALUES)
        target = s.keeper.array("numpy", poisoned())
        for pages, error, words in [*WRONG, (on_gpu, TypeError, r"is on cuda:0.*\.cpu\(\)")]:
            with pytest.raises(error, match=words):
                s.peer.write_pages(memory, target.remote, pages, [0, 1])
        assert (target.show() == POISON).all()


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
        memory, _ = array(s.ep, "numpy", np.ones(ours))
        target = s.keeper.array("numpy", np.zeros(theirs))
        with pytest.raises(ValueError, match=words):
            s.peer.write_pages(memory, target.remote, [], [])
        other, _ = array(s.ep, "numpy", np.ones((4, 3), np.float32))
        wide = s.keeper.array("numpy", np.zeros((4, 3)))
        with pytest.raises(ValueError, match=r"\(3,\) of float32 and .* \(3,\) of float64"):
            s.peer.write_pages(other, wide.remote, [0], [0])
        assert not target.show().any()


def test_rights_are_kept(thread):
    fixed = VALUES.copy()
    fixed.flags.writeable = False
    with thread(keep) as s:
        memory = s.ep.register(fixed)
        target = s.keeper.array("numpy", poisoned())
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

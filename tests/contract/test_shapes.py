"""Strided, reversed, empty and mismatching arrays: NumPy's basic indexing on both sides."""

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.keeper import keep

BASE = np.arange(6 * 8 * 5, dtype=np.float32).reshape(6, 8, 5)
S = slice

# Pairs of indices into BASE with one shape: where the bytes come from, where they go.
PAIRS = {
    "whole": ((), ()),
    "row to row": ((2,), (4,)),
    "column to column": ((S(None), S(None), 1), (S(None), S(None), 3)),
    "column to row": ((S(0, 5), 2, 0), (1, 1)),
    "row to column": ((1, 1), (S(0, 5), 2, 0)),
    "step 2 to packed": ((S(None, None, 2),), (S(0, 3),)),
    "packed to step 2": ((S(0, 3),), (S(None, None, 2),)),
    "inner step 2 to inner step 3": (
        (S(None), S(0, 6, 2), S(0, 4)),
        (S(None), S(0, 8, 3), S(1, 5)),
    ),
    "reversed source": ((S(None, None, -1),), ()),
    "reversed target": ((), (S(None, None, -1),)),
    "reversed inner axis": ((Ellipsis, S(None, None, -1)), ()),
    "reversed to reversed with another step": (
        (S(None, None, -2), S(7, 3, -1)),
        (S(0, 3), S(0, 8, 2)),
    ),
    "one element of one": ((S(3, 4), S(3, 4), S(3, 4)), (S(0, 1), S(7, 8), S(4, 5))),
    "0-d": ((3, 2, 1), (-1, -1, -1)),
    "new axis": ((None, 0), (S(5, 6),)),
}


def reference(source: tuple, target: tuple, value: np.ndarray) -> np.ndarray:
    expected = np.full_like(BASE, -7)
    expected[target] = value[source]
    return expected


def test_what_goes_between_slices_is_what_numpy_assignment_is(remote, kind):
    with remote(keep) as s:
        source, _ = array(s.ep, kind, BASE)
        sink, view = array(s.ep, kind, BASE)
        kept = s.keeper.array(kind, BASE)
        for name, (source_index, target_index) in PAIRS.items():
            expected = reference(source_index, target_index, BASE)
            target = s.keeper.array(kind, np.full_like(BASE, -7))
            transfer = s.peer.write(source[source_index], target.remote[target_index])
            transfer.wait()
            assert transfer.nbytes == BASE[source_index].nbytes
            np.testing.assert_array_equal(target.show(), expected, f"write: {name}")
            view[...] = -7
            s.peer.read(kept.remote[source_index], sink[target_index]).wait()
            np.testing.assert_array_equal(view, expected, f"read: {name}")


def test_large_strided_arrays_arrive_whole(remote):
    """More segments than any queue is deep, and than one scatter/gather list can hold."""
    values = np.random.default_rng(0).random((1500, 96))
    with remote(keep) as s:
        memory, view = array(s.ep, "numpy", values)
        target = s.keeper.array("numpy", np.zeros((96, 1500)))
        back, back_view = array(s.ep, "numpy", np.zeros((1500, 96)))
        columns = np.zeros((96, 1500))
        for column in (0, 50, 95):
            s.peer.write(memory[:, column], target.remote[column, ::-1]).wait()
            columns[column, ::-1] = view[:, column]
        np.testing.assert_array_equal(target.show(), columns)
        s.peer.read(target.remote[50, ::-1], back[:, 7]).wait()
        np.testing.assert_array_equal(back_view[:, 7], values[:, 50])
        assert not back_view[:, 8].any()


def test_arrays_registered_with_strides_keep_them(remote):
    values = np.arange(60.0).reshape(6, 10)
    with remote(keep) as s:
        for view in (values.T, values[::2, ::-3], values[::-1], values[:, 4]):
            memory = s.ep.register(view)
            assert memory.shape == view.shape
            assert memory.strides == view.strides
            target = s.keeper.array("numpy", np.zeros(view.shape))
            s.peer.write(memory, target.remote).wait()
            np.testing.assert_array_equal(target.show(), view)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
def test_zero_size_is_a_no_op_that_completes(remote, kind, shape):
    if kind == "bytearray":
        shape = (0,)  # memoryview.cast knows no zero in a shape of several axes
    with remote(keep) as s:
        memory, _ = array(s.ep, "numpy", np.zeros(shape, np.float32))
        assert memory.nbytes == 0
        target = s.keeper.array("empty", np.zeros(shape, np.float32))
        s.peer.write(memory, target.remote).wait()
        s.peer.read(target.remote, memory).wait()
        full, _ = array(s.ep, kind, BASE)
        s.peer.write(full[:0], s.keeper.array(kind, BASE).remote[:0]).wait()


MISMATCHES = {
    "shorter": ((6,), (5,)),
    "longer": ((5,), (6,)),
    "broadcast of one": ((1,), (6,)),
    "broadcast of a scalar": ((), (6,)),
    "broadcast of rows": ((6,), (3, 6)),
    "same bytes, other shape": ((2, 3), (3, 2)),
    "same bytes, other rank": ((6,), (2, 3)),
    "empty to full": ((0,), (6,)),
}


@pytest.mark.parametrize("name", MISMATCHES)
@pytest.mark.parametrize("verb", ["write", "read"])
def test_shapes_must_match_exactly(thread, name, verb):
    ours, theirs = MISMATCHES[name]
    with thread(keep) as s:
        memory, view = array(s.ep, "numpy", np.ones(ours, np.int16))
        target = s.keeper.array("numpy", np.zeros(theirs, np.int16))
        pair = (memory, target.remote) if verb == "write" else (target.remote, memory)
        with pytest.raises(ValueError, match="shape"):
            getattr(s.peer, verb)(*pair)
        assert not target.show().any()
        assert view.all()


@pytest.mark.parametrize("verb", ["write", "read"])
@pytest.mark.parametrize("theirs", ["int32", "uint16", "float16", "bool"])
def test_dtypes_must_match_exactly(thread, verb, theirs):
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", np.ones(4, np.int16))
        target = s.keeper.array("numpy", np.zeros(4, theirs))
        pair = (memory, target.remote) if verb == "write" else (target.remote, memory)
        with pytest.raises((TypeError, ValueError), match="dtype"):
            getattr(s.peer, verb)(*pair)
        assert not target.show().any()


def test_memory_of_as_many_elements_is_reshaped_at_either_end(remote):
    with remote(keep) as s:
        memory, view = array(s.ep, "numpy", np.arange(24, dtype=np.int16))
        target = s.keeper.array("numpy", np.zeros((4, 6), np.int16))
        with pytest.raises(
            ValueError, match=r"shapes differ: .*\(24,\).*\(4, 6\); slice one .* reshape"
        ):
            s.peer.write(memory, target.remote)
        s.peer.write(memory.reshape(4, -1), target.remote).wait()
        np.testing.assert_array_equal(target.show(), view.reshape(4, 6))
        view[:] = 0
        s.peer.read(target.remote.reshape((24,))[6:], memory.reshape([3, 8]).reshape(24)[6:]).wait()
        assert view.tolist() == [*[0] * 6, *range(6, 24)]
        for wrong in (memory, target.remote):
            with pytest.raises(ValueError, match="24 elements, which do not make"):
                wrong.reshape(5, -1)
            with pytest.raises(TypeError, match="integer or a tuple of integers, not str"):
                wrong.reshape("4")
        with pytest.raises(ValueError, match="gaps"):
            target.remote[:, ::2].reshape(-1)
        memory.close()
        with pytest.raises(zh.RegistrationError, match="closed"):
            memory.reshape(-1)


def test_memory_is_viewed_as_another_dtype_at_either_end(remote):
    numbers = np.arange(24, dtype=np.int16).reshape(4, 6)
    with remote(keep) as s:
        memory, view = array(s.ep, "numpy", numbers.copy())
        target = s.keeper.array("numpy", np.zeros((4, 6), np.int16))
        words, floats = target.remote.view(np.uint32), memory.view("float32")
        assert (words.dtype, words.shape, words.strides) == ("uint32", (4, 3), (12, 4))
        assert (floats.dtype, floats.shape, floats.address) == ("float32", (4, 3), memory.address)
        with pytest.raises(ValueError, match="dtypes differ"):
            s.peer.write(floats, words)
        s.peer.write(floats.view("uint32")[1:, 1], words[:3, 2]).wait()
        placed = np.zeros((4, 3), np.uint32)
        placed[:3, 2] = numbers.view(np.uint32)[1:, 1]
        np.testing.assert_array_equal(target.show(), placed.view(np.int16))
        s.peer.read(words.view("int16"), memory).wait()
        np.testing.assert_array_equal(view, placed.view(np.int16))
        for wrong in (memory, target.remote):
            with pytest.raises(
                ValueError, match=r"12 bytes of its last axis are not a whole number"
            ):
                wrong.view("float64")
            with pytest.raises(
                ValueError, match=r"address \d+ is not a multiple of 4; begin the slice"
            ):
                wrong[:, 1:5].view("float32")
            with pytest.raises(ValueError, match="last axis has gaps"):
                wrong[:, ::2].view("int8")
            with pytest.raises(TypeError, match="a dtype is a name"):
                wrong.view(3.5)
        memory.close()
        assert floats.closed
        with pytest.raises(zh.RegistrationError, match="closed"):
            memory.view("int8")


READ_ONLY = (ValueError, TypeError, BufferError, zh.Error)


def test_a_read_only_array_is_a_source_but_no_target(remote):
    fixed = np.arange(10)
    fixed.flags.writeable = False
    with remote(keep) as s:
        memory = s.ep.register(fixed)
        assert not memory.writable
        target = s.keeper.array("numpy", np.zeros(10, fixed.dtype))
        s.peer.write(memory, target.remote).wait()
        np.testing.assert_array_equal(target.show(), fixed)
        with pytest.raises(READ_ONLY, match=r"read-only|writ"):
            s.peer.read(target.remote, memory)
        with pytest.raises(READ_ONLY, match=r"read-only|writ"):
            s.peer.recv(memory)
        with pytest.raises(READ_ONLY, match=r"read-only|writ"):
            s.ep.register(fixed, writable=True)


def refuse_pairs(s):
    memory, _ = array(s.ep, "numpy", BASE)
    target = s.keeper.array("numpy", BASE)
    good, fixed = (memory[0], target.remote[0]), s.ep.register(BASE.copy(), writable=False)
    closed = s.ep.register(BASE.copy(), cache=False)
    closed.close()
    for wrong, kind, words in (
        ((memory[1], target.remote[1:]), ValueError, "pair 2: shapes differ"),
        ((memory[1], target.remote.view("int32")[1]), ValueError, "pair 2: dtypes differ"),
        (
            (memory[1], fixed[1].remote),
            ValueError,
            "pair 2: this RemoteMemory is memory of this Endpoint itself",
        ),
        ((closed, target.remote), zh.RegistrationError, "pair 2: this memory is closed"),
    ):
        for verb, order in ((s.peer.write_many, 1), (s.peer.read_many, -1)):
            with pytest.raises(kind, match=words):
                verb([pair[::order] for pair in (good, good, wrong, good)])
    with pytest.raises(ValueError, match="pair 1: cannot read into a read-only array"):
        s.peer.read_many([good[::-1], (target.remote[1], fixed[1])])
    s.peer.write_many([good, (memory[1], target.remote[1])]).wait()


def test_of_many_pairs_the_wrong_one_is_named(remote):
    with remote(keep) as s:
        refuse_pairs(s)

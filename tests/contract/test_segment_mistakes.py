"""What Segment refuses, and how it says so."""

from __future__ import annotations

import numpy as np
import pytest
import zerohop as zh
from support.attempt import within


def differ(world):
    """Who does not make the same segment is not found, and says so."""
    segment = world.segment(8 * (world.rank + 1), name="x", notifications=10)
    assert segment.remote(1 - world.rank).nbytes == 8 * (2 - world.rank)
    other = world.segment(8, name="y", notifications=10 + world.rank)
    with pytest.raises(zh.TransferTimeout, match=r"segment 'y'.*as many notifications"), within(5):
        other.write(1 - world.rank, 0, 0, 8)
    world.barrier()


def test_segments_that_differ_do_not_meet(rank_threads):
    rank_threads(differ, 2, timeout=1.0)


def refuse(world):
    segment = world.segment(100, name="s", notifications=5, queues=2)
    other = (world.rank + 1) % 2
    bounds = [
        (96, 0, 5),
        (-1, 0, 1),
        (0, 96, 5),
        (0, -1, 1),
        (0, 101, 0),
        (np.zeros(101, np.uint8), 0, None),
    ]
    for move in bounds:
        for call in (segment.write, segment.read):
            with pytest.raises(IndexError, match=r"segment 's' of 'world'.*not within the 100 of"):
                call(other, *move)
        with pytest.raises(IndexError):
            segment.write_list(other, [(0, 0, 1), move])
    with pytest.raises(ValueError, match="nbytes must be 0 at least"):
        segment.write(other, 0, 0, -1)
    with pytest.raises(TypeError, match="nbytes is needed"):
        segment.write(other, 0, 0)
    with pytest.raises(IndexError, match="9 bytes of an array that has 8"):
        segment.write(other, np.zeros(8, np.uint8), 0, 9)
    with pytest.raises(ValueError, match="contiguous"):
        segment.write(other, np.zeros((4, 4), np.uint8)[:, 1], 0)
    for rank in (2, -1):
        with pytest.raises(IndexError, match="ranks go from 0 to 1"):
            segment.write(rank, 0, 0, 1)
    for queue in (2, -1):
        with pytest.raises(IndexError, match="queues go from 0 to 1"):
            segment.write(other, 0, 0, 1, queue=queue)
        with pytest.raises(IndexError, match="queues go from 0 to 1"):
            segment.wait(queue)
    for slot in (5, -1):
        with pytest.raises(IndexError, match="not among slots 0 to 4"):
            segment.notify(other, slot)
    for value in (0, -1, 2**32):
        with pytest.raises(ValueError, match=r"from 1 to 2\*\*32 - 1"):
            segment.write_notify(other, 0, 0, 1, slot=0, value=value)
    for call in (segment.write_notify, segment.read_notify):
        with pytest.raises(TypeError, match="positional arguments"):
            call(other, 0, 0, 8, 3)  # which of the two would be nbytes?
        with pytest.raises(TypeError, match="'slot'"):
            call(other, 0, 0, 8)
    frozen = np.zeros(8, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        segment.read(other, frozen, 0)
    with pytest.raises(ValueError, match="give a writable array"):
        world.segment(frozen)
    for options in (
        {"queues": 17},
        {"queues": 0},
        {"notifications": 0},
        {"name": ""},
        {"dtype": "int64"},
    ):
        with pytest.raises(ValueError, match=r"must be|not a whole number"):
            world.segment(100, **options)
    with pytest.raises(ValueError, match="no negative size"):
        world.segment(-1)
    segment.wait(0)
    assert segment.notify(other, 4, 2**32 - 1).wait() is None


def test_wrong_arguments_are_refused(rank_threads):
    rank_threads(refuse, 2)


def refuse_moves(world):
    """Lists say which of their moves is wrong; numbers are whole."""
    segment = world.segment(100, name="s")
    other = 1 - world.rank
    for call in (segment.write_list, segment.read_list):
        for wrong, words in (
            (8, "move 1 must be .*local, remote, nbytes.*, not a int"),
            ((8,), "move 1 must be .* not a tuple of 1"),
            ((0, 0, 8, 1), "move 1 must be .* not a tuple of 4"),
            ("abc", "move 1 must be .* not a str"),
            ((0, 0), "move 1: beside an offset into the own part nbytes is needed"),
            ((0, 0.5, 8), "move 1: remote must be an int, in bytes, not 0.5"),
            ((0.0, 0, 8), "move 1: local must be an offset .* or an array, not 0.0"),
            ((0, 0, 8.0), "move 1: nbytes must be an int, in bytes, not 8.0"),
            ((0, True, 8), "move 1: remote must be an int, in bytes, not True"),
            ((None, 0, 8), "move 1: a NoneType is not an array"),
        ):
            with pytest.raises(TypeError, match=words):
                call(other, [(0, 0, 8), wrong, (8, 8, 8)])
        with pytest.raises(IndexError, match=r"move 1: segment 's' .*not within the 100"):
            call(other, [(0, 0, 1), (0, 96, 5)])
        call(other, [[np.int64(0), np.uint8(50), np.int32(8)]])
    with pytest.raises(TypeError, match="remote must be an int"):
        segment.write(other, 0, 1e3, 8)
    with pytest.raises(TypeError, match="offset must be an int"):
        segment.atomic_fetch_add(other, 8.0, 1)
    frozen = np.zeros(8, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="pair 1: cannot read into a read-only array"):
        segment.read_list(other, [(0, 0, 8), (frozen, 8)])
    segment.wait()


def test_a_wrong_move_is_named(rank_threads):
    rank_threads(refuse_moves, 2)


def use_closed(world):
    """The slots of a segment that was closed are the next one's: it keeps its hands off them."""
    old = world.segment(8, name="old", notifications=5)
    world.barrier()
    old.close()
    new = world.segment(8, name="new", notifications=5)
    assert new.slots == old.slots
    other = 1 - world.rank
    new.notify(other, 3, 7)
    assert new.notify_waitsome(3, 1) == 3
    for call in (
        lambda: old.notify_reset(3),
        lambda: old.notify_waitsome(3, 1, 0),
        lambda: old.notify_waitsome(timeout=0),
        lambda: old.notify(other, 3),
        lambda: old.device_board(),
    ):
        with pytest.raises(zh.Error, match=r"segment 'old' of 'world' is closed"):
            call()
    assert new.notify_reset(3) == 7
    world.barrier()


def test_a_closed_segment_is_refused(rank_threads):
    rank_threads(use_closed, 2)


def share_a_name(world):
    """Who takes a name twice is refused at once; nobody waits for what was not made."""
    first = world.segment(8, name="x")
    with pytest.raises(ValueError, match="has a segment 'x' already: close that one"), within(1):
        world.segment(8, name="x")
    numbered = world.segment(8, name="1")
    assert [world.segment(8).name for _ in range(2)] == ["2", "3"]
    numbered.notify(1 - world.rank, 0)
    numbered.notify_waitsome(0, 1)
    world.barrier()
    first.close()
    world.barrier()
    again = world.segment(16, name="x")
    again.write(1 - world.rank, 0, 0, 16)
    again.wait()


def test_open_segments_have_names_of_their_own(rank_threads):
    rank_threads(share_a_name, 2)

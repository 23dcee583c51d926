"""What Segment refuses, and how it says so."""

import numpy as np
import pytest
import zerohop as zh
from support.attempt import within


def differ(world):
    """Who does not make the same segment is not found, and says so."""
    segment = world.segment(8 * (world.rank + 1), name="x", notifications=10)
    assert segment.remote(1 - world.rank).nbytes == 8 * (2 - world.rank)
    other = world.segment(8, name="y", notifications=10 + world.rank)
    words = "segment 'y'.*the same number of notifications"
    with pytest.raises(zh.TransferTimeout, match=words), within(5):
        other.write(1 - world.rank, 0, 0, 8)
    world.barrier()


def test_segments_that_differ_do_not_meet(rank_threads):
    rank_threads(differ, 2, timeout=1.0)


def refuse(world):
    s = world.segment(100, name="s", notifications=5, queues=2)
    other, frozen, eight = 1 - world.rank, np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    frozen.flags.writeable = False
    cases = [
        *((IndexError, r"segment 's' of 'world'.*not within the 100 of", lambda call=call, move=move: call(other, *move))
          for call in (s.write, s.read)
          for move in ((96, 0, 5), (-1, 0, 1), (0, 96, 5), (0, -1, 1), (0, 101, 0), (np.zeros(101, "u1"), 0, None))),
        (ValueError, "nbytes must be at least 0", lambda: s.write(other, 0, 0, -1)),
        (TypeError, "needs nbytes", lambda: s.write(other, 0, 0)),
        (IndexError, "9 bytes of an array that has 8", lambda: s.write(other, eight, 0, 9)),
        (ValueError, "contiguous", lambda: s.write(other, np.zeros((4, 4), np.uint8)[:, 1], 0)),
        (IndexError, "ranks go from 0 to 1", lambda: s.write(2, 0, 0, 1)),
        (IndexError, "ranks go from 0 to 1", lambda: s.write(-1, 0, 0, 1)),
        (IndexError, "queues go from 0 to 1", lambda: s.write(other, 0, 0, 1, queue=2)),
        (IndexError, "queues go from 0 to 1", lambda: s.wait(-1)),
        (IndexError, "not among slots 0 to 4", lambda: s.notify(other, 5)),
        (IndexError, "not among slots 0 to 4", lambda: s.notify(other, -1)),
        (ValueError, r"from 1 to 2\*\*32 - 1", lambda: s.write_notify(other, 0, 0, 1, slot=0, value=0)),
        (TypeError, "positional arguments", lambda: s.write_notify(other, 0, 0, 8, 3)),  # which would be nbytes?
        (TypeError, "'slot'", lambda: s.read_notify(other, 0, 0, 8)),
        (TypeError, "remote must be an int", lambda: s.write(other, 0, 1e3, 8)),
        (TypeError, "offset must be an int", lambda: s.atomic_fetch_add(other, 8.0, 1)),
        (ValueError, "read-only", lambda: s.read(other, frozen, 0)),
        (ValueError, "give a writable array", lambda: world.segment(frozen)),
        (ValueError, "must be", lambda: world.segment(100, queues=17)),
        (ValueError, "must be", lambda: world.segment(100, notifications=0)),
        (ValueError, "must be", lambda: world.segment(100, name="")),
        (ValueError, "not a whole number", lambda: world.segment(100, dtype="int64")),
        (ValueError, "cannot be negative", lambda: world.segment(-1)),
        *((kind, words, lambda call=call, move=move: call(other, [(0, 0, 8), move, (8, 8, 8)]))
          for call in (s.write_list, s.read_list)
          for kind, words, move in (
            (TypeError, "move 1 must be .*local, remote, nbytes.*, not a int", 8),
            (TypeError, "move 1 must be .* not a tuple of 4", (0, 0, 8, 1)),
            (TypeError, "move 1: an offset into the own part needs nbytes", (0, 0)),
            (TypeError, "move 1: remote must be an integer, not 0.5", (0, 0.5, 8)),
            (TypeError, "move 1: local must be an offset .* or an array, not 0.0", (0.0, 0, 8)),
            (TypeError, "move 1: nbytes must be an integer, not 8.0", (0, 0, 8.0)),
            (IndexError, r"move 1: segment 's' .*not within the 100", (0, 96, 5)))),
        (ValueError, "pair 1: cannot read into a read-only array",
         lambda: s.read_list(other, [(0, 0, 8), (frozen, 8)])),
    ]  # fmt: skip
    for kind, words, call in cases:
        with pytest.raises(kind, match=words):
            call()
    s.write_list(other, [[np.int64(0), np.uint8(50), np.int32(8)]])
    s.wait(0)
    assert s.notify(other, 4, 2**32 - 1).wait() is None


def test_wrong_arguments_are_refused(rank_threads):
    rank_threads(refuse, 2)


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

"""A rank that dies is lost for the operations that concern it; the others go on."""

import signal
import time

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.ranks import close, results, worlds


@pytest.fixture
def dying(victim):
    """Rank 2 of three."""
    return victim(3)


@pytest.fixture
def ranks(rank_threads, dying):
    """Ranks 0 and 1, each with its segment; all three have met."""
    made = worlds(rank_threads, [0, 1], 3)
    segments = [world.segment(1 << 20, name="data") for world in made]
    results([Attempt(world.barrier) for world in made])
    yield list(zip(made, segments, strict=True))
    close(made)


OPERATIONS = {
    "write": lambda segment: segment.write(2, 0, 0, 1 << 20),
    "write_notify": lambda segment: segment.write_notify(2, 0, 0, 8, slot=1),
    "write_list": lambda segment: segment.write_list(2, [(0, 0, 8), (8, 8, 8)]),
    "write_list_notify": lambda segment: segment.write_list_notify(2, [(0, 0, 8)], 1),
    "notify": lambda segment: segment.notify(2, 1),
    "read": lambda segment: segment.read(2, 0, 0, 1 << 20),
    "read_list": lambda segment: segment.read_list(2, [(0, 0, 8), (8, 8, 8)]),
    "read_notify": lambda segment: segment.read_notify(2, 0, 0, 8, slot=1),
    "atomic_fetch_add": lambda segment: segment.atomic_fetch_add(2, 0, 1),
    "atomic_compare_swap": lambda segment: segment.atomic_compare_swap(2, 0, 0, 1),
}


def go_on(segment, name, end):
    """Posts and waits until that fails."""
    while time.monotonic() < end:
        OPERATIONS[name](segment)
        segment.wait()


# One of each sort is under way; all are called later.
@pytest.mark.parametrize(
    "name", ["write", "write_list_notify", "read", "read_notify", "atomic_fetch_add"]
)
def test_operations_with_a_killed_rank_fail(ranks, dying, name):
    (world, segment), (other, _) = ranks
    pending = Attempt(go_on, segment, name, time.monotonic() + 30)
    pending.stays_pending(0.05)
    killed = dying.signal(signal.SIGKILL)
    error = pending.failure(zh.PeerLost, LOST_WITHIN)
    assert pending.ended_at - killed < LOST_WITHIN
    assert "segment 'data' of 'world', rank 2" in str(error)
    for later in OPERATIONS.values():
        with pytest.raises(zh.PeerLost, match="segment 'data' of 'world', rank 2"), within(1):
            later(segment)
    assert world.state() == ["healthy", "healthy", "corrupt"]
    segment.wait()  # what failed has been reported
    segment.write_notify(1, 0, 0, 8, slot=3)
    assert ranks[1][1].notify_waitsome(3, 1) == 3
    assert segment.atomic_fetch_add(1, 64, 1) == 0
    with pytest.raises(zh.PeerLost), within(LOST_WITHIN):
        ranks[1][1].write(2, 0, 0, 8)
    assert other.state() == ["healthy", "healthy", "corrupt"]


def test_a_queue_tells_of_a_killed_rank_once(ranks, dying, p2p):
    (_, segment), (_, other) = ranks
    segment.write(2, 0, 0, 8)
    segment.wait()
    dying.signal(signal.SIGSTOP)
    big = np.arange(1 << 20, dtype=np.uint8)
    segment.read(2, 0, 0, 1 << 20, queue=1)
    segment.write(1, big, 0, queue=1)
    dying.signal(signal.SIGKILL)
    if p2p:  # copied without that process, before it was killed
        segment.wait(1, LOST_WITHIN)
    else:
        words = "queue 1 of segment 'data' of 'world', rank 2: "
        with pytest.raises(zh.PeerLost, match=words), within(LOST_WITHIN):
            segment.wait(1)
    segment.wait(1)
    assert other.local.tolist() == big.tolist()


def test_who_waits_for_a_notification_goes_on_while_others_are_left(ranks, dying):
    (_, segment), (_, other) = ranks
    waiting = Attempt(segment.notify_waitsome)
    waiting.stays_pending(0.05)
    dying.signal(signal.SIGKILL)
    waiting.stays_pending(0.6)
    other.notify(0, 9)
    assert waiting.value() == 9


def test_who_only_waits_learns_that_nobody_is_left(rank_threads, dying, ranks):
    (first, segment), (second, _) = ranks
    waiting = Attempt(segment.notify_waitsome, 0, 5, 20)
    killed = dying.signal(signal.SIGKILL)
    second.close()
    error = waiting.failure(zh.PeerLost, LOST_WITHIN)
    assert waiting.ended_at - killed < LOST_WITHIN
    assert "all other ranks are lost" in str(error)
    assert first.state() == ["healthy", "corrupt", "corrupt"]

"""The notifications of Segments: ranges, resets, waits that end, and nobody else's slots."""

import itertools

import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.patience import SLOW
from support.ranks import close, worlds


def find_slots(world):
    segment = world.segment(8, notifications=50)
    if world.rank == 0:
        for slot in (49, 0, 25):
            segment.notify(1, slot, 1000 + slot)
        segment.wait()
        return
    assert segment.notify_waitsome(25, 1) == 25  # the last one: the others are there, too
    assert segment.notify_waitsome(49, 1) == 49
    assert segment.notify_waitsome(25) == 25
    assert segment.notify_waitsome(26) == 49
    assert segment.notify_waitsome() == 0
    assert segment.notify_waitsome(0, 50) == 0  # it stays until it is taken
    for first, slots in ((1, 24), (26, 23)):
        with pytest.raises(zh.TransferTimeout, match="no notification came to slots"):
            segment.notify_waitsome(first, slots, timeout=0)
    assert [segment.notify_reset(slot) for slot in (0, 25, 49)] == [1000, 1025, 1049]
    assert segment.notify_reset(0) == 0
    for first, slots in ((50, 1), (-1, 1), (0, 51), (49, 2), (3, 0), (3, -1)):
        with pytest.raises(IndexError, match="not among slots 0 to 49"):
            segment.notify_waitsome(first, slots)
    with pytest.raises(IndexError, match="not among slots 0 to 49"):
        segment.notify_reset(50)


def test_waitsome_looks_at_its_range_only(rank_threads):
    rank_threads(find_slots, 2)


def take(world, slots):
    """Rank 1: two threads take what comes to one range; who gets 0 was too late."""
    segment = world.segment(8, notifications=slots)
    if world.rank == 0:
        for slot in range(slots):
            segment.notify(1, slot, slot + 1)
        segment.wait()
        return None
    taken: list[list[int]] = [[], []]

    def reap(number):
        while sum(map(len, taken)) < slots:
            try:
                slot = segment.notify_waitsome(timeout=0.05)
            except zh.TransferTimeout:
                continue
            if value := segment.notify_reset(slot):
                assert value == slot + 1
                taken[number].append(slot)

    reaping = [Attempt(reap, number) for number in range(2)]
    for attempt in reaping:
        attempt.value()
    return sorted(taken[0] + taken[1])


def test_of_two_threads_one_gets_the_value(rank_threads):
    slots = int(2000 / SLOW)
    assert rank_threads(take, 2, slots)[1] == list(range(slots))


def segments_apart(world):
    """Notifications of several segments, of the barrier and of the program do not meet."""
    made = [world.segment(8, notifications=10) for _ in range(3)]
    ranges = [segment.slots for segment in made]
    assert all(a.stop <= b.start for a, b in itertools.pairwise(ranges))
    target = 1 - world.rank
    for number, segment in enumerate(made):
        segment.notify(target, 9, 10 + number)
    world.peer(target).notify(9, 5)
    world.barrier()
    values = []
    for segment in made:
        assert segment.notify_waitsome() == 9
        values.append(segment.notify_reset(9))
    assert values == [10, 11, 12]
    assert world.endpoint.wait_notify(9) == 5
    world.barrier()
    made[1].notify(target, 3, 1)  # nobody takes it
    made[1].wait()
    world.barrier()
    made[1].close()
    made[1].close()
    again = world.segment(8, notifications=10)
    assert again.slots == ranges[1]
    world.barrier()
    with pytest.raises(zh.TransferTimeout):
        again.notify_waitsome(timeout=0)
    with pytest.raises(ValueError, match="use fewer notifications"):
        world.segment(8, notifications=60_000)


def test_every_segment_has_slots_of_its_own(rank_threads):
    rank_threads(segments_apart, 2)


def test_who_has_not_started_holds_nobody_up(rank_threads):
    first, second = worlds(rank_threads, [1, 2], 3)  # rank 0 is asked for first
    waiting = Attempt(first.segment(8).notify_waitsome)
    waiting.stays_pending(0.6)
    with within(3.0):
        second.segment(8).notify(1, 3)
        assert waiting.value() == 3
    close([first, second])


def time_out(world):
    segment = world.segment(8)
    if world.rank == 0:
        for timeout in (0, 0.2):
            with (
                within(2, timeout),
                pytest.raises(zh.TransferTimeout, match="segment '0' of 'world'"),
            ):
                segment.notify_waitsome(timeout=timeout)
        with within(2):
            segment.wait(timeout=0)  # there is nothing to wait for
    world.barrier()
    for timeout in (-1, float("nan")):
        for call in (segment.wait, segment.notify_waitsome):
            with pytest.raises(ValueError, match="seconds"):
                call(timeout=timeout)


def test_waits_end_in_time(rank_threads):
    rank_threads(time_out, 2)

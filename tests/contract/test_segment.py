"""Segment: memory of all ranks by offsets, operations in queues, atomics, and notifications."""

import importlib
import itertools

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.patience import SLOW
from support.ranks import close, worlds

ROUNDS = int(100_000 / SLOW)
RING = 1000  # places that are written in turn
CELL = 64  # bytes of each
POISON = 0xA5


def stream_rounds(world, rounds):
    """Rank 0 writes every cell in turn; rank 1 checks and poisons it, and gives each half of the ring back."""
    segment = world.segment(2 * RING * CELL, name="ring", dtype="uint32", notifications=RING + 2)
    cells = segment.local.reshape(2 * RING, CELL // 4)
    half = RING // 2
    for number in range(1, rounds + 1):
        place = number % RING
        before, last = divmod(number - 1, half)  # halves that are through
        if world.rank == 0:
            if last == 0 and before >= 2:
                credit = RING + before % 2  # two may be under way
                assert segment.notify_waitsome(credit, 1) == credit
                assert segment.notify_reset(credit) == before - 1
                segment.wait()
            cells[RING + place] = number
            here, there = (RING + place) * CELL, place * CELL
            segment.write_notify(1, here, there, CELL, slot=place, value=number)
        else:
            slot = segment.notify_waitsome(place, 1)
            assert slot == place
            assert segment.notify_reset(slot) == number
            wrong = cells[place][cells[place] != number]
            assert wrong.size == 0, f"round {number}: {wrong[0]:#x}"
            cells[place] = 0x01010101 * POISON
            if last == half - 1:
                segment.notify(0, RING + before % 2, before + 1)
    segment.wait()


@pytest.mark.timeout(300)
def test_a_notification_comes_behind_its_data(rank_processes):
    rank_processes(stream_rounds, 2, ROUNDS)


def exchange(world):
    """Every operation, from every rank to the next one."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    segment = world.segment(4096, name="s", dtype="int64")
    here = segment.local
    here[:10] = 100 * world.rank + np.arange(10)
    segment.write(right, 0, 800, 80)  # by offsets
    segment.write_notify(
        right, here[1:3], 1600, slot=7, value=world.rank + 1
    )  # a part of the own part
    segment.write(right, np.arange(5, dtype=np.float32), 2400)  # an array of the program
    registered = world.endpoint.register(np.full(16, world.rank, np.uint8))
    segment.write(right, registered, 2440, nbytes=8)
    moves = [(8 * i, 2480 + 16 * i, 8) for i in range(5)]
    segment.write_list(right, moves)
    segment.write_list_notify(right, [(here[9:10], 2560, None)], 8, 5)
    assert sorted(segment.notify_waitsome(first, 1) for first in (8, 7)) == [7, 8]
    assert (segment.notify_reset(7), segment.notify_reset(8)) == (left + 1, 5)
    segment.wait(0)
    assert here[100:110].tolist() == [100 * left + i for i in range(10)]
    assert here[200:202].tolist() == [100 * left + 1, 100 * left + 2]
    assert here[300:303].view(np.float32)[:5].tolist() == [0, 1, 2, 3, 4]
    assert here[305:306].view(np.uint8).tolist() == [left] * 8
    assert here[310:320:2].tolist() == [100 * left + i for i in range(5)]
    assert here[320] == 100 * left + 9
    world.barrier()
    fetched = np.full(12, -1)
    segment.read(right, 400 * 8, 0, 80, queue=1)
    segment.read(right, fetched[2:], 0, queue=1)
    segment.wait(1)
    assert here[400:410].tolist() == fetched[2:].tolist() == [100 * right + i for i in range(10)]
    assert fetched[:2].tolist() == [-1, -1]
    segment.read_list(right, [(fetched[0:1], 72, None), (3360, 8, 16)], queue=2)
    segment.wait(2)
    assert fetched[0] == 100 * right + 9
    assert here[420:422].tolist() == [100 * right + 1, 100 * right + 2]
    segment.read_notify(right, 3440, 24, 8, slot=1000, value=99)
    assert segment.notify_waitsome(1000, 1) == 1000
    assert segment.notify_reset(1000) == 99
    assert here[430] == 100 * right + 3
    segment.wait()
    assert world.state() == ["healthy"] * world.size


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_operation_arrives(job, size):
    job(exchange, size)


def count(world, times):
    segment = world.segment(64, dtype="uint64")
    seen = [segment.atomic_fetch_add(0, 8, 1) for _ in range(times)]
    for _ in range(times):
        old = segment.atomic_fetch_add(0, 16, 0)
        while (now := segment.atomic_compare_swap(0, 16, old, old + 3)) != old:
            old = now
    world.barrier()
    return seen, segment.local.tolist()


@pytest.mark.parametrize("size", [1, 3])
def test_atomics_of_all_ranks_are_exact(job, size):
    times = int(100 / SLOW)
    results = job(count, size, times)
    assert sorted(itertools.chain(*(seen for seen, _ in results))) == list(range(size * times))
    assert results[0][1][:4] == [0, size * times, 3 * size * times, 0]


def given(world):
    """An array of the program becomes the part; empty parts and moves are no trouble."""
    array = np.zeros((4, 5), np.float32)
    segment = world.segment(array, name="a")
    assert segment.local is array
    other = 1 - world.rank
    segment.write_notify(other, np.full(5, world.rank + 1, np.float32), 20, slot=0)
    segment.notify_waitsome(0, 1)
    assert array.tolist() == [[0] * 5, [other + 1] * 5, [0] * 5, [0] * 5]
    world.barrier()
    assert segment.atomic_fetch_add(other, 72, 3) == 0
    segment.write(other, 80, 80, 0)
    segment.write_list_notify(other, [], slot=1)
    segment.notify_waitsome(1, 1)
    segment.wait()
    empty = world.segment(0)
    assert empty.nbytes == 0
    empty.notify(other, 3)
    assert empty.notify_waitsome() == 3
    empty.wait()
    with pytest.raises(IndexError):
        empty.atomic_fetch_add(other, 0, 1)
    whole = np.zeros(48, np.uint8)
    skip = (1 - whole.ctypes.data) % 8
    odd = world.segment(whole[skip : skip + 32], name="odd")
    for rank in range(2):
        with pytest.raises(zh.RouteUnavailable, match="keep counters in a host segment"):
            odd.atomic_fetch_add(rank, 0, 1)
    world.barrier()


def test_a_given_array_is_the_part(rank_threads):
    rank_threads(given, 2)


def of_torch(world):
    """Tensors and buffers, as the part and beside it."""
    import torch

    tensor, other = torch.zeros(4, 3, dtype=torch.bfloat16), 1 - world.rank
    segment = world.segment(tensor, name="tensor")
    assert segment.local is tensor
    segment.write_notify(other, torch.full((3,), 2.5, dtype=torch.bfloat16), 6, slot=0)
    segment.write_notify(other, b"\x20\x40" * 3, 12, slot=1)  # 2.5 in bfloat16
    segment.write_notify(other, memoryview(bytearray(b"\x20\x40")), 18, slot=2)
    assert [segment.notify_waitsome(slot, 1) for slot in range(3)] == [0, 1, 2]
    assert tensor.tolist() == [[0] * 3, [2.5] * 3, [2.5] * 3, [2.5, 0, 0]]
    halves = world.segment(8, name="halves", dtype=torch.float16)
    assert halves.local.dtype == "float16"
    assert halves.local.tolist() == [0.0] * 4
    back = bytearray(6)
    segment.read(other, back, 6)
    segment.wait()
    assert back == b"\x20\x40" * 3
    with pytest.raises(ValueError, match="read-only"):
        segment.read(other, b"\x20\x40", 6)


def test_tensors_and_buffers_are_arrays_too(rank_threads):
    importlib.import_module("torch")  # seconds, the first time
    rank_threads(of_torch, 2)


def flood(world, times):
    """More than a queue takes: the calls wait, and nothing is lost."""
    segment = world.segment(8 * times, dtype="int64")
    source = np.arange(times)
    if world.rank == 0:
        for i in range(times):
            segment.write(1, source[i : i + 1], 8 * i, queue=i % 2)
        segment.wait(0)
        segment.wait(1)
    world.barrier()
    return segment.local.tolist() if world.rank == 1 else None


def test_a_full_queue_holds_the_caller_up(rank_threads):
    times = int(5000 / SLOW)
    assert rank_threads(flood, 2, times)[1] == list(range(times))


def many_threads(world, times):
    segment = world.segment(8 * 4 * times, dtype="int64")
    other = 1 - world.rank

    def work(number):
        for i in range(times):
            place = 8 * (number * times + i)
            segment.write(other, np.array([number * times + i + 1]), place, queue=number % 2)
        segment.wait(number % 2)

    working = [Attempt(work, number) for number in range(4)]
    for attempt in working:
        attempt.value()
    world.barrier()
    assert segment.local.tolist() == list(range(1, 4 * times + 1))


def test_threads_share_queues(rank_threads):
    rank_threads(many_threads, 2, int(300 / SLOW))


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
            words = "segment '0' of 'world'"
            with pytest.raises(zh.TransferTimeout, match=words), within(2, timeout):
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

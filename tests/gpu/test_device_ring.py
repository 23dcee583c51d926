"""Kernels whose entries a thread of the host or a device carries out, between two processes."""

import os
import signal
from typing import Any

import cupy
import numpy as np
import pytest
from device_kernels import BLOCK, FAILED, MISALIGNED, NOT_ALLOWED, OK, OUT_OF_BOUNDS, fetch
from far_side import THEIRS
from test_device_queue import (
    NBYTES,
    PATIENCE,
    TEAMS,
    both_ends,
    check_gets,
    check_notifications,
    check_puts,
    i32,
    poison,
    u32,
    u64,
    write_rounds,
)

WAYS = {
    "proxy": "a thread of this process carries out",
    "direct": "ring its doorbell by themselves",
}


@pytest.fixture(
    params=[(device, way) for device in THEIRS for way in WAYS], ids="-".join, scope="module"
)
def lasting(request):
    device, way = request.param
    with both_ends(device, way=way) as ends:
        yield ends


@pytest.fixture
def ends(lasting):
    return poison(lasting)


def test_it_says_so(ends):
    assert WAYS[ends.queue.way] in ends.queue.route.reason
    assert ends.queue.error is None


def test_put_at_random_places(ends):
    check_puts(ends, 100)


def test_get_at_random_places(ends):
    check_gets(ends, 100)


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (1, 32), (1, 50), (4, 128)])
def test_threads_put_at_once(ends, blocks, threads):
    """More than the ring holds, some of them with lanes of a warp that is not full."""
    times = 4096 // (blocks * threads)
    took = cupy.zeros(2, "uint64")
    ends.status.fill(0)
    ends.kernels.put_values(blocks, threads, ends.queue.value, u32(times), ends.status, took)
    assert int(fetch(ends.status)[0]) == OK
    count = blocks * threads * times
    there = ends.far.run(f"answer = array[: 8 * {count}].cpu().numpy().view(np.uint64)")
    assert (there == np.arange(count, dtype=np.uint64) * 3 + 1).all()


@pytest.mark.parametrize("team", TEAMS)
def test_notifications_between_kernels(ends, team):
    check_notifications(ends, team)


def test_data_is_there_before_its_notification(ends):
    write_rounds(ends, blocks=4, rounds=300, nbytes=4000, patience=PATIENCE)


def test_atomics_in_memory_of_the_host(ends):
    ends.far.run('words = ep.empty(8, "int64"); ep.share("words", words)')
    with ends.peer.device_queue(ends.memory, ends.peer["words"], way=ends.queue.way) as queue:
        times, threads, blocks = 5, 64, 2
        olds = cupy.zeros(times * threads * blocks, "uint64")
        got = ends.call("count_up", blocks, threads, queue.value, u64(16), i32(times), olds)
        assert got[0] == -1
        assert sorted(fetch(olds).tolist()) == list(range(olds.size))
        assert ends.far.run("answer = int(np.asarray(words)[2])") == olds.size
        old = cupy.zeros(1, "uint32")
        swap: tuple[Any, ...] = (queue.value, u64(0), u32(0), u32(1), old)
        assert ends.call("swap_one", 1, 1, *swap)[0] == NOT_ALLOWED  # of 4 bytes
        assert ends.call("count_up", 1, 1, queue.value, u64(12), i32(1), olds)[0] == MISALIGNED
        assert ends.call("count_up", 1, 1, queue.value, u64(64), i32(1), olds)[0] == OUT_OF_BOUNDS


@pytest.mark.parametrize("way", WAYS)
def test_calls_fail_when_the_peer_is_killed(way):
    with both_ends(THEIRS[-1], way=way) as ends:
        one = (ends.queue.value, i32(BLOCK), u64(0), u64(0), u64(NBYTES))
        assert ends.call("put_done", 1, 256, *one)[0] == OK
        os.kill(ends.far.process.pid, signal.SIGKILL)
        ends.far.process.join(30)
        status = OK
        for _ in range(100):  # until it is known
            if status != OK:
                break
            status = ends.call("put_done", 1, 256, *one)[0]
        assert status == FAILED
        assert ends.queue.error

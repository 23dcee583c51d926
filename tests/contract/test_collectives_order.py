"""Collectives that run behind the program: in their order, while it does other things, and waited for by whom it likes."""

from __future__ import annotations

import subprocess
import sys
import time
import weakref

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.patience import SLOW, patient
from support.ranks import close, results, worlds
from zerohop.collectives.line import EAGER


@pytest.fixture
def pair(rank_threads):
    made = worlds(rank_threads, [0, 1], 2)
    yield made
    close(made)


@pytest.mark.parametrize("nbytes", [8, EAGER, 2 * EAGER])
def test_who_does_not_wait_goes_on(pair, nbytes):
    first, second = pair
    here = np.zeros(nbytes, np.uint8)
    with within(1.0):
        call = second.broadcast(here, wait=False)
    assert not call.done
    assert "broadcast of 'world', call 1, under way" in repr(call)
    with pytest.raises(zh.TransferTimeout, match="still under way; it goes on"), within(2, 0.1):
        call.wait(0.1)
    with pytest.raises(zh.TransferTimeout), within(1):
        call.wait(0)
    first.broadcast(np.full(nbytes, 7, np.uint8))
    call.wait()
    assert call.done
    assert (here == 7).all()
    call.wait(0)
    assert repr(call) == "<zerohop.Collective broadcast of 'world', call 1, done>"


def test_what_returns_has_ended(pair):
    arrays = np.zeros((2, 1)), np.ones((2, 1))
    calls = [
        Attempt(world.all_gather, array, array[world.rank])
        for world, array in zip(pair, arrays, strict=True)
    ]
    assert [call.done for call in results(calls)] == [True, True]


def test_calls_keep_their_order(pair):
    """Those that are waited for come behind those that are not."""
    first, second = pair
    came = np.zeros((20, 10))
    calls = [second.broadcast(came[number], wait=number % 5 == 4) for number in range(4)]
    last = Attempt(second.broadcast, came[4])
    last.stays_pending(0.1)
    assert not any(call.done for call in calls)
    for number in range(5):
        first.broadcast(np.full(10, float(number + 1)))
    last.value()
    assert all(call.done for call in calls)
    assert came[:5, 0].tolist() == came[:5, -1].tolist() == [1, 2, 3, 4, 5]


def test_many_may_wait(pair):
    first, second = pair
    here = np.zeros(3)
    call = second.broadcast(here, wait=False)
    waiting = [Attempt(call.wait) for _ in range(5)]
    for attempt in waiting:
        attempt.stays_pending(0.02)
    first.broadcast(np.ones(3))
    results(waiting)


def overlap(world, rounds):
    """Both directions under way at once, and a barrier among them."""
    out = np.zeros((rounds, world.size, 3), np.int64)
    calls = []
    for number in range(rounds):
        mine = np.full(3, 1000 * number + world.rank)
        calls.append(world.all_gather(out[number], mine, wait=False))
        if number % 10 == 0:
            world.barrier()
    for call in calls:
        call.wait()
    expected = 1000 * np.arange(rounds)[:, None] + np.arange(world.size)
    assert (out == expected[:, :, None]).all()


def test_many_are_under_way(job):
    job(overlap, 3, int(100 / SLOW))


def test_a_world_that_is_closed_ends_what_is_under_way(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2)
    call = second.broadcast(np.zeros(3), wait=False)
    with within(5):
        second.close()
    with pytest.raises(zh.Error, match="broadcast of 'world', call 1"), within(5):
        call.wait()
    with pytest.raises(zh.Error, match="the World 'world' is closed"):
        second.broadcast(np.zeros(3))
    first.close()


def test_threads_may_call_in_turns(pair):
    """The order is that of the calls, whichever threads make them."""
    first, second = pair
    came = np.zeros(10, np.int64)
    for number in range(10):
        calls = [
            Attempt(first.broadcast, np.array([number + 1])),
            Attempt(second.broadcast, came[number : number + 1]),
        ]
        results(calls)
    assert came.tolist() == list(range(1, 11))


_LEAVE = """
import sys
import numpy as np
import zerohop as zh

world = zh.World(sys.argv[1], 0, 2, device="soft0")
calls = [world.broadcast(np.zeros(3), wait=False) for _ in range(2)]
print(*(call.done for call in calls))
"""


def test_a_program_may_end_with_calls_under_way(tmp_path):
    with within(10):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _LEAVE, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=patient(30),
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False False\n", "")


class Watched(np.ndarray):
    """An array to which there are weak references."""


def lend(world, nbytes, wait):
    """What a call was given it lets go when it has ended."""
    array, out = np.zeros(nbytes, np.uint8).view(Watched), np.zeros((world.size, nbytes), np.uint8)
    call = world.all_gather(out, array, wait=wait)
    call.wait()
    gone = weakref.ref(array)
    del array
    end = time.monotonic() + patient(10)
    while gone() is not None and time.monotonic() < end:
        world.barrier()  # the thread behind the program has yet to come to its end
    assert gone() is None
    assert call.done


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("nbytes", [100, 2 * EAGER])
def test_arrays_are_given_back(rank_threads, nbytes, wait):
    rank_threads(lend, 1, nbytes, wait)

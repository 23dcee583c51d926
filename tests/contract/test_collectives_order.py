"""Collectives that run behind the program: in their order, while it does other things, and waited for by whom it likes."""

import time
import warnings
import weakref

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.patience import SLOW, patient
from support.program import run_python
from support.ranks import results, worlds
from support.signals import ctrl_c
from zerohop.collectives.lines import EAGER


@pytest.mark.parametrize("nbytes", [8, EAGER, 2 * EAGER])
def test_who_does_not_wait_goes_on(pair, nbytes):
    first, second = pair
    here = np.zeros(nbytes, np.uint8)
    with within(1.0):
        call = second.broadcast(here, wait=False)
    assert not call.done
    assert "broadcast of 'world', call 1, under way" in repr(call)
    with pytest.raises(zh.TransferTimeout, match="still running; it continues"), within(2, 0.1):
        call.wait(0.1)
    with pytest.raises(zh.TransferTimeout), within(1):
        call.wait(0)
    first.broadcast(np.full(nbytes, 7, np.uint8))
    call.wait()
    assert call.done
    assert (here == 7).all()
    call.wait(0)
    assert repr(call) == "<zerohop.Collective broadcast of 'world', call 1, done>"


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
    with within(5), pytest.warns(RuntimeWarning, match="have ended: broadcast of"):
        second.close()
    said = "broadcast of 'world', call 1: the World 'world' is closed"
    with pytest.raises(zh.Error, match=said), within(5):
        call.wait()
    with pytest.raises(zh.Error, match="the World 'world' is closed"):
        second.broadcast(np.zeros(3))
    first.close()


CLOSED_IN = {
    "barrier": zh.World.barrier,
    "small": lambda world: world.all_reduce(np.zeros(3)),
    "large": lambda world: world.broadcast(np.zeros(100_000), 1),
    "of two": lambda world: world.send_recv(from_=1, out=np.zeros(3)),
}


@pytest.mark.parametrize("call", CLOSED_IN)
@pytest.mark.parametrize("connected", [False, True])
def test_a_call_says_that_its_world_was_closed_meanwhile(rank_threads, call, connected):
    first, second = worlds(rank_threads, [0, 1], 2)
    if connected:
        results([Attempt(world.all_reduce, 1) for world in (first, second)])
    waiting = Attempt(CLOSED_IN[call], first)
    waiting.stays_pending(0.1)
    first.close()
    assert str(waiting.failure(zh.Error, 5)).endswith("the World 'world' is closed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what `first` has sent
        second.close()


def met(first, second):
    """Both have had calls with the other, so that the next ones need no more than messages."""
    for sender, receiver in ((first, second), (second, first)):
        both = ((sender, np.ones(3)), (receiver, np.zeros(3)))
        results([Attempt(world.broadcast, array, sender.rank) for world, array in both])
        sender.send_recv(to=receiver.rank, array=np.ones(3))
        receiver.send_recv(from_=sender.rank, out=np.zeros(3))


def test_a_call_of_another_thread_waits_for_the_one_that_runs(pair):
    first, second = pair
    met(first, second)
    here, there = np.zeros(3), np.zeros(3)
    runs = Attempt(second.broadcast, here)
    runs.stays_pending(0.1)
    waits = Attempt(lambda: second.send_recv(from_=0, out=there))
    waits.stays_pending(0.1)
    behind = second.all_gather(np.zeros((2, 1)), np.zeros(1), wait=False)
    first.broadcast(np.ones(3))
    runs.value()
    waits.stays_pending(0.1)
    first.send_recv(to=1, array=np.full(3, 2.0))
    waits.value()
    assert here.tolist() == [1, 1, 1]
    assert there.tolist() == [2, 2, 2]
    assert not behind.done
    first.all_gather(np.zeros((2, 1)), np.zeros(1))
    behind.wait()


def test_a_call_within_a_call_of_the_same_thread_is_refused(pair):
    first, second = pair
    met(first, second)

    class Nested:
        def __array__(self, *_, **__):
            raise AssertionError

        def __dlpack__(self, **_):
            return second.broadcast(np.zeros(3))

        def __dlpack_device__(self):
            return (1, 0)

    with within(5), pytest.raises((zh.Error, BufferError), match="collective of this World"):
        second.broadcast(Nested())


def test_ctrl_c_while_another_thread_has_the_lock(pair):
    first, second = pair
    met(first, second)
    runs = Attempt(second.broadcast, np.zeros(3))
    runs.stays_pending(0.1)
    with ctrl_c(), within(2), pytest.raises(KeyboardInterrupt):
        second.send_recv(from_=0, out=np.zeros(3))
    assert "KeyboardInterrupt" in str(runs.failure(zh.Error))
    assert second._desk._calls.acquire(1.0)
    second._desk._calls.release()


def test_a_call_behind_one_of_another_thread_times_out(pair):
    first, second = pair
    met(first, second)
    runs = Attempt(second.broadcast, np.zeros(3))
    runs.stays_pending(0.1)
    words = "another thread of this rank was in"
    with pytest.raises(zh.TransferTimeout, match=words), within(2, 0.3):
        second.send_recv(from_=0, out=np.zeros(3), timeout=0.3)
    assert words in str(runs.failure(zh.Error))


def test_a_timeout_among_those_who_have_met_is_the_last_call(pair):
    first, second = pair
    met(first, second)
    late = "rank 0 has not made the matching call"
    with pytest.raises(zh.TransferTimeout, match=late), within(2, 0.6):
        second.broadcast(np.zeros(3), timeout=0.6)
    with pytest.raises(zh.Error, match="the collectives of this World have ended"):
        second.broadcast(np.zeros(3))
    with pytest.raises(zh.Error, match="rank 1"), within(5):
        first.all_gather(np.zeros((2, 1)), np.zeros(1))


def test_ctrl_c_among_those_who_have_met_ends_the_calls(pair):
    first, second = pair
    met(first, second)
    with ctrl_c(), within(2), pytest.raises(KeyboardInterrupt):
        second.broadcast(np.zeros(3))
    with pytest.raises(zh.Error, match="the collectives of this World have ended"):
        second.send_recv(from_=0, out=np.zeros(3))
    with pytest.raises(zh.Error, match="KeyboardInterrupt"), within(5):
        first.all_gather(np.zeros((2, 1)), np.zeros(1))


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
        done = run_python("-c", _LEAVE, str(tmp_path), seconds=30, warnings="error")
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

"""fetch_add and compare_swap: exact from many threads and peers, 64 bits, 8-byte aligned."""

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, has_atomics
from support.attempt import Attempt
from support.forge import Forged, forge
from support.keeper import keep
from support.link import until

TOP = 1 << 63


def counters(session, values, kind="counter"):
    return session.keeper.array(kind, values)


def check_refused(session, kept):
    """Where the Endpoints copy what lies on a GPU, nobody could do an atomic there."""
    before = kept.show()
    for call in (
        lambda: session.peer.fetch_add(kept.remote[0], 3),
        lambda: session.peer.compare_swap(kept.remote[0], 5, 3),
    ):
        with pytest.raises(zh.RouteUnavailable, match="keep counters in host memory") as caught:
            call()
        assert caught.value.effect == "nothing"
    np.testing.assert_array_equal(kept.show(), before)


def test_fetch_add_returns_what_was_there(remote, kind):
    with remote(keep) as s:
        kept = counters(s, np.array([5, 100], np.int64), kind)
        if not has_atomics(kind):
            return check_refused(s, kept)
        assert s.peer.fetch_add(kept.remote[0], 3).wait() == 5
        assert s.peer.fetch_add(kept.remote[0], -10).wait() == 8
        assert s.peer.fetch_add(kept.remote[0:1], 0).wait() == -2
        assert kept.show().tolist() == [-2, 100]


def test_an_atomic_behind_a_long_read_gets_its_own_answer(remote):
    with remote(keep) as s:
        kept = counters(s, np.array([5], np.int64))
        numbers = np.arange((1 << 17) + 1)  # soft0 answers reads in pieces of 1 MiB
        long = s.keeper.array("numpy", numbers)
        back = np.zeros_like(numbers)
        reading = s.peer.read(long.remote, s.ep.register(back))
        assert s.peer.fetch_add(kept.remote[0], 3).wait() == 5
        reading.wait()
        np.testing.assert_array_equal(back, numbers)
        assert s.peer.compare_swap(kept.remote[0], 8, 9).wait() == 8


def test_compare_swap_swaps_only_when_equal(remote, kind):
    with remote(keep) as s:
        kept = counters(s, np.array([5, 100], np.int64), kind)
        if not has_atomics(kind):
            return check_refused(s, kept)
        assert s.peer.compare_swap(kept.remote[1], 99, 1).wait() == 100
        assert kept.show().tolist() == [5, 100]
        assert s.peer.compare_swap(kept.remote[1], 100, -1).wait() == 100
        assert s.peer.compare_swap(kept.remote[1], -1, 7).wait() == -1
        assert kept.show().tolist() == [5, 7]


def test_values_wrap_around_in_their_own_type(remote):
    with remote(keep) as s:
        unsigned = counters(s, np.array([2**64 - 1, TOP], np.uint64))
        signed = s.keeper.array("counter", np.array([TOP - 1, -TOP], np.int64))
        assert s.peer.fetch_add(unsigned.remote[0], 2).wait() == 2**64 - 1
        assert s.peer.fetch_add(unsigned.remote[1], TOP).wait() == TOP
        assert s.peer.compare_swap(unsigned.remote[1], 0, 2**64 - 1).wait() == 0
        assert unsigned.show().tolist() == [1, 2**64 - 1]
        assert s.peer.fetch_add(signed.remote[0], 1).wait() == TOP - 1
        assert s.peer.compare_swap(signed.remote[1], -TOP, -1).wait() == -TOP
        assert signed.show().tolist() == [-TOP, -1]


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "1", 1.5, None])
def test_values_that_do_not_fit_are_refused(thread, value):
    with thread(keep) as s:
        kept = counters(s, np.array([5], np.int64))
        with pytest.raises((ValueError, TypeError, OverflowError)):
            s.peer.fetch_add(kept.remote[0], value)
        with pytest.raises((ValueError, TypeError, OverflowError)):
            s.peer.compare_swap(kept.remote[0], 5, value)
        assert kept.show().tolist() == [5]


@pytest.mark.parametrize(
    "values",
    [np.zeros(2, np.int32), np.zeros(2, np.float64), np.zeros(2, np.int8), np.zeros(2, bool)],
)
def test_other_dtypes_are_refused(thread, values):
    with thread(keep) as s:
        kept = counters(s, values)
        with pytest.raises((ValueError, TypeError), match="int64"):
            s.peer.fetch_add(kept.remote[0], 1)


def test_exactly_one_element_is_meant(thread):
    with thread(keep) as s:
        kept = counters(s, np.zeros(3, np.int64))
        for wrong in (kept.remote, kept.remote[:2], kept.remote[:0]):
            with pytest.raises((ValueError, TypeError)):
                s.peer.fetch_add(wrong, 1)
        with pytest.raises(TypeError):
            s.peer.fetch_add(s.ep.empty(1, "int64"), 1)


def misaligned(ep, peer, link):
    raw = np.zeros(32, np.uint8)
    memory = ep.register(raw)
    start = -memory.address % 8
    odd = ep.register(raw[start + 4 : start + 12].view(np.int64))
    link.send(odd.remote)
    link.meet("tried")
    assert not raw.any()


def test_misaligned_elements_are_refused(remote):
    with remote(misaligned) as s:
        far = s.link.recv()
        assert far.address % 8 == 4
        for call in (
            lambda: s.peer.fetch_add(far, 1),
            lambda: s.peer.compare_swap(far, 0, 1),
        ):
            with pytest.raises((ValueError, zh.VerbsError), match=r"align|divisible"):
                call().wait()
        assert s.peer.alive
        s.link.meet("tried")


def add_one(peer, far, count):
    return [peer.fetch_add(far, 1).wait() for _ in range(count)]


def add_from_afar(ep, peer, link, count):
    far = link.recv()
    link.send(add_one(peer, far, count))


def test_sums_are_exact_from_two_peers_and_many_threads(remote):
    """Every old value is seen exactly once: nothing is lost, nothing is counted twice."""
    count, threads = 400, 4
    with remote(add_from_afar, count) as a, remote(add_from_afar, count, endpoint=a.ep) as b:
        memory, view = array(a.ep, "counter", np.zeros(1, np.int64))
        for s in (a, b):
            s.link.send(memory.remote[0])
        seen = a.link.recv() + b.link.recv()
        assert view[0] == 2 * count
        assert sorted(seen) == list(range(2 * count))
    with remote(keep) as s:
        kept = counters(s, np.zeros(1, np.int64))
        adding = [Attempt(add_one, s.peer, kept.remote[0], count) for _ in range(threads)]
        seen = [old for attempt in adding for old in attempt.value()]
        assert sorted(seen) == list(range(threads * count))
        assert kept.show()[0] == threads * count


def test_many_in_flight_come_back_in_order(remote):
    with remote(keep) as s:
        kept = counters(s, np.zeros(1, np.int64))
        transfers = [s.peer.fetch_add(kept.remote[0], 1) for _ in range(2000)]
        assert [t.wait() for t in transfers] == list(range(2000))


def lock_and_add(peer, lock, value, view, memory, rounds):
    """A spin lock on compare_swap guards a value that is read, changed and written back."""
    for _ in range(rounds):
        until(lambda: peer.compare_swap(lock, 0, 1).wait() == 0, "the lock is mine", 30)
        peer.read(value, memory).wait()
        view += 1
        peer.write(memory, value).wait()
        assert peer.compare_swap(lock, 1, 0).wait() == 1


def lock_partner(ep, peer, link, rounds):
    lock, value = link.recv()
    memory, view = array(ep, "numpy", np.zeros(1, np.float32))
    lock_and_add(peer, lock, value, view, memory, rounds)


def test_compare_swap_makes_a_lock(remote):
    rounds = 60
    with remote(lock_partner, rounds) as a, remote(lock_partner, rounds, endpoint=a.ep) as b:
        lock, _ = array(a.ep, "counter", np.zeros(1, np.uint64))
        value, view = array(a.ep, "numpy", np.zeros(1, np.float32))
        for s in (a, b):
            s.link.send((lock.remote[0], value.remote))
        for s in (a, b):
            s.returned()
        assert view[0] == 2 * rounds


def test_memory_of_a_device_without_atomics_is_refused_with_the_reason(remote):
    with remote(keep) as s:
        kept = counters(s, np.array([5], np.int64))
        far = forge(kept.remote, access=Forged.of(kept.remote).access | 4)  # as its owner would say
        for call in (
            lambda: s.peer.fetch_add(far[0], 1),
            lambda: s.peer.compare_swap(far[0], 5, 1),
        ):
            with pytest.raises(zh.RouteUnavailable, match="atomic_cap is NONE"):
                call()
        assert s.peer.fetch_add(kept.remote[0], 1).wait() == 5

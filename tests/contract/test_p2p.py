"""Host memory of processes on one host: copied without a device, with every guarantee kept."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, pattern
from support.attempt import LOST_WITHIN, Attempt, within
from support.forking import forking
from support.keeper import Keeper, keep
from support.link import until
from support.partner import Partners
from support.session import Remote

BIG = 64 << 20  # bytes: longer than a call may take
P2P = pytest.mark.parametrize("kind", ["empty", "numpy"])  # mapped pages; memory of another process


@pytest.fixture(params=["thread", "process"])
def near(request: pytest.FixtureRequest, partners: Partners, monkeypatch) -> Remote:
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    return Remote(partners, request.param, "soft0")


@pytest.fixture
def near_process(partners: Partners, monkeypatch) -> Remote:
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    return Remote(partners, "process", "soft0")


@P2P
def test_bytes_do_not_touch_the_device(near, kind):
    with near(keep) as s:
        values = pattern(1 << 20)
        target = Keeper(s.link).array(kind, np.zeros(1 << 20, np.uint8))
        memory, view = array(s.ep, "numpy", values)
        before = s.peer.stats()
        s.peer.write(memory, target.remote, require="p2p").wait()
        np.testing.assert_array_equal(target.show(), values)
        view[:] = 0
        s.peer.read(target.remote, memory, require="p2p").wait()
        np.testing.assert_array_equal(view, values)
        after = s.peer.stats()
        assert after["work_requests"] == before["work_requests"]
        assert after["p2p"] == {"bytes_out": 1 << 20, "bytes_in": 1 << 20}
        assert after["bytes_out"] - before["bytes_out"] == 1 << 20
        s.link.send(("end",))


def notified(ep, peer, link):
    """Waits for each value in turn, and says what the last word of the memory was then."""
    target = ep.empty(BIG // 8, "int64")
    link.send(target.remote)
    for value in range(1, link.recv() + 1):
        assert ep.wait_notify(3) == value
        last = int(np.asarray(target)[-1])
        assert last >= value, f"notification {value} came before its data ({last})"
        peer.notify(4, value).wait()


@pytest.mark.parametrize("nbytes", [8, 4096, BIG])
def test_a_notification_follows_its_copy(near, nbytes):
    rounds = 5 if nbytes == BIG else 300
    with near(notified) as s:
        far = s.link.recv()
        s.link.send(rounds)
        memory, view = array(s.ep, "numpy", np.zeros(nbytes // 8, np.int64))
        for value in range(1, rounds + 1):
            view[:] = value
            transfer = s.peer.write(memory, far[-(nbytes // 8) :], notify=(3, value))
            assert transfer.route.kind == "p2p"
            assert s.ep.wait_notify(4) == value
            transfer.wait()


def sleeper(ep, peer, link):
    link.meet("ready")
    with within(20):
        link.send(ep.wait_notify(1, timeout=20))


def test_who_sleeps_is_woken(near):
    """Long after the waiter has stopped to poll."""
    with near(sleeper) as s:
        s.link.meet("ready")
        asleep = threading.Event()
        threading.Timer(0.3, asleep.set).start()  # what is tested begins after the spin, 200 us
        asleep.wait()
        s.peer.notify(1, 77).wait()
        assert s.link.recv() == 77


@P2P
def test_large_copies_do_not_hold_the_caller_up(near, kind):
    """Several are posted in less time than they take, and end in their order."""
    with near(keep) as s:
        target = Keeper(s.link).array(kind, np.zeros(BIG, np.uint8))
        memory, view = array(s.ep, "numpy", pattern(BIG))
        transfers = [s.peer.write(memory, target.remote) for _ in range(6)]
        assert not transfers[-1].done
        last = s.peer.write(memory[:1], target.remote[:1])  # short, but behind the others
        last.wait()
        assert all(transfer.done for transfer in transfers)
        np.testing.assert_array_equal(target.show(), view)
        s.link.send(("end",))


def receiver(ep, peer, link):
    target = ep.empty(BIG, "uint8")
    link.send(target.remote)
    word = np.zeros(1, np.int64)
    for value in range(1, 11):
        peer.recv(word, tag=5).wait()
        assert word[0] == value
        assert (np.asarray(target)[[0, BIG // 2, -1]] == value).all(), "the message was faster"
    link.send("done")


def test_messages_and_atomics_stay_behind_copies(near):
    """What a device carries does not overtake what was copied before."""
    with near(receiver) as s:
        far = s.link.recv()
        memory, view = array(s.ep, "numpy", np.zeros(BIG, np.uint8))
        for value in range(1, 11):
            view[:] = value
            copy = s.peer.write(memory, far)
            s.peer.send(np.array([value]), tag=5)
            copy.wait()
        assert s.link.recv() == "done"


def shows_a_slot(ep, peer, link):
    memory = ep.empty(8, "uint8")
    link.send(memory.remote)
    last = link.recv()
    until(lambda: ep.peek_notify(6) == last, "the last value is there")
    for _ in range(1000):
        assert ep.peek_notify(6) == last


def test_notifications_keep_the_order_of_both_ways(near):
    """One slot, by turns over the device and by p2p: the last value stays."""
    with near(shows_a_slot) as s:
        far = s.link.recv()
        memory, _ = array(s.ep, "numpy", np.zeros(8, np.uint8))
        for value in range(1, 201):
            route = "host" if value % 2 else "p2p"
            s.peer.write(memory, far, notify=(6, value), require=route).wait()
            last = value
        s.link.send(last)


@P2P
def test_closed_memory_is_not_written(near, kind):
    with near(keep) as s:
        keeper = Keeper(s.link)
        target = keeper.array(kind, np.zeros(4096, np.uint8))
        memory, _ = array(s.ep, "numpy", np.ones(4096, np.uint8))
        s.peer.write(memory, target.remote).wait()
        target.revoke()
        with pytest.raises((zh.VerbsError, zh.RouteUnavailable)):
            s.peer.write(memory, target.remote, require="p2p").wait()
        with pytest.raises(zh.VerbsError):
            s.peer.write(memory, target.remote).wait()
        again = keeper.array(kind, np.zeros(4096, np.uint8))
        s.peer.write(memory, again.remote, require="p2p").wait()
        assert again.show().all()
        keeper.end()


def closes_meanwhile(ep, peer, link, kind):
    memory, view = array(ep, kind, np.zeros(BIG, np.uint8))
    link.send(memory.remote)
    link.meet("writing")
    memory.close()
    view[:] = 7
    link.meet("written")
    assert (view == 7).all(), "written after close()"


@P2P
def test_memory_closed_in_mid_copy_is_left_alone(near, kind):
    with near(closes_meanwhile, kind) as s:
        far = s.link.recv()
        memory, _ = array(s.ep, "numpy", np.ones(BIG, np.uint8))
        transfers = [s.peer.write(memory, far) for _ in range(8)]
        s.link.meet("writing")
        errors = []
        for transfer in transfers:
            try:
                transfer.wait()
            except zh.VerbsError as error:
                errors.append(error)
        s.link.meet("written")
        assert s.peer.alive
        assert all(error.effect in ("nothing", "some") for error in errors)


def writes_when_told(ep, peer, link):
    far = link.recv()
    memory, _ = array(ep, "numpy", np.ones(4096, np.uint8))
    peer.write(memory[:1], far[:1], require="p2p").wait()
    link.meet("mapped")
    link.meet("forked")
    peer.write(memory, far, require="p2p").wait()
    link.send("written")


def test_a_forked_child_that_drops_memory_does_not_close_it(near):
    with near(writes_when_told) as s:
        memory, view = array(s.ep, "empty", np.zeros(4096, np.uint8))
        s.link.send(memory.remote)
        s.link.meet("mapped")
        with forking():
            child = os.fork()
        if child == 0:
            del memory, view
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        s.link.meet("forked")
        assert s.link.recv() == "written"
        assert view.all()


def test_read_only_memory_stays_so(near):
    with near(offer_read_only) as s:
        far = s.link.recv()
        memory, view = array(s.ep, "numpy", np.ones(100, np.int64))
        with pytest.raises(ValueError, match="read-only"):
            s.peer.write(memory, far, require="p2p")
        s.peer.read(far, memory, require="p2p").wait()
        assert view.tolist() == list(range(100))
        s.link.meet("read")


def offer_read_only(ep, peer, link):
    memory = ep.register(np.arange(100), writable=False)
    link.send(memory.remote)
    link.meet("read")


@pytest.mark.parametrize("side", ["here", "there", "both"])
def test_either_side_may_do_without(partners, monkeypatch, side):
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    remote = Remote(partners, "process", "soft0")
    here, there = int(side == "there"), int(side == "here")
    with zh.Endpoint("soft0", p2p=here) as ep, remote(keep, endpoint=ep, p2p=there) as s:
        target = Keeper(s.link).array("empty", np.zeros(10))
        memory, _ = array(ep, "numpy", np.ones(10))
        route = s.peer.route(memory, target.remote)
        assert route.kind == "host"
        assert ("p2p=0" in route.reason) == (side == "there")  # who has it on is told why not
        s.peer.write(memory, target.remote).wait()
        assert target.show().all()
        with pytest.raises(zh.RouteUnavailable, match="p2p=0"):
            s.peer.write(memory, target.remote, require="p2p")
        s.link.send(("end",))


def test_a_peer_that_stands_still_is_asked_in_vain_but_not_for_long(near_process):
    """Its memory is mapped at the first transfer, and it does not answer."""
    with near_process(keep, timeout=30.0) as s:
        target = Keeper(s.link).array("empty", np.zeros(10))
        memory, _ = array(s.ep, "numpy", np.ones(10))
        s.signal(signal.SIGSTOP)
        with within(3.0), pytest.raises(zh.RouteUnavailable, match="did not answer"):
            s.peer.write(memory, target.remote, require="p2p")
        s.signal(signal.SIGCONT)
        s.peer.write(memory, target.remote, require="p2p").wait()
        assert target.show().all()
        s.link.send(("end",))


@P2P
def test_kill_9_of_the_owner_in_mid_copy(near_process, kind):
    with near_process(keep, timeout=30.0) as s:
        target = Keeper(s.link).array(kind, np.zeros(BIG, np.uint8))
        memory, _ = array(s.ep, "numpy", pattern(BIG))
        s.peer.write(memory[:1], target.remote[:1], require="p2p").wait()

        def for_ever():
            while True:
                s.peer.write(memory, target.remote).wait()

        flowing = Attempt(for_ever)
        until(lambda: s.peer.stats()["p2p"]["bytes_out"] > 4 * BIG, "bytes flow")
        s.signal(signal.SIGKILL)
        killed = time.monotonic()
        flowing.failure(zh.PeerLost, timeout=LOST_WITHIN)
        assert flowing.ended_at - killed < LOST_WITHIN


def writes_for_ever(ep, peer, link):
    far = link.recv()
    memory, _ = array(ep, "numpy", np.ones(BIG, np.uint8))
    peer.write(memory, far, require="p2p").wait()
    link.send("flowing")
    while True:
        peer.write(memory, far).wait()


@P2P
def test_kill_9_of_the_writer_in_mid_copy(near_process, kind):
    """The owner's memory is its own again as soon as it is closed."""
    with near_process(writes_for_ever, timeout=30.0) as s:
        memory, view = array(s.ep, kind, np.zeros(BIG, np.uint8))
        s.link.send(memory.remote)
        assert s.link.recv() == "flowing"
        s.signal(signal.SIGKILL)
        with within(5.0):
            memory.close()
        view[:] = 3
        until(lambda: not s.peer.alive, "the dead writer is not alive", LOST_WITHIN)
        assert (view == 3).all()


def test_a_million_small_writes(near):
    with near(keep) as s:
        target = Keeper(s.link).array("empty", np.zeros(1000, np.int64))
        memory, view = array(s.ep, "numpy", np.arange(1000))
        parts = [(memory[i : i + 1], target.remote[i : i + 1]) for i in range(1000)]
        for _ in range(10):
            s.peer.write_many(parts * 100).wait()
        np.testing.assert_array_equal(target.show(), view)
        s.link.send(("end",))


@P2P
def test_random_slices_byte_for_byte(near, kind):
    rng = np.random.default_rng(1)
    with near(keep) as s:
        block = Keeper(s.link).block(kind, 100_000, 3)
        expected = block.show()
        memory, view = array(s.ep, "numpy", pattern(100_000))
        for _ in range(200):
            begin, step = int(rng.integers(90_000)), int(rng.integers(1, 9))
            count = int(rng.integers((100_000 - begin) // step)) + 1
            count = min(count, (100_000 - begin + step - 1) // step)
            there = slice(begin, begin + (count - 1) * step + 1, step)
            s.peer.write(memory[:count], block.remote[there], require="p2p").wait()
            expected[there] = view[:count]
        np.testing.assert_array_equal(block.show(), expected)
        s.link.send(("end",))

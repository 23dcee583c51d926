"""Host memory of processes on one host: copied without a device, with every guarantee kept."""

import statistics
import threading
import time

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, pattern
from support.keeper import keep
from support.link import until
from support.session import Remote

BIG = 64 << 20  # bytes: longer than a call may take
P2P = pytest.mark.parametrize("kind", ["empty", "numpy"])  # mapped pages; memory of another process


@P2P
def test_bytes_do_not_touch_the_device(near, kind):
    with near(keep) as s:
        values = pattern(1 << 20)
        target = s.keeper.array(kind, np.zeros(1 << 20, np.uint8))
        memory, view = array(s.ep, "numpy", values)
        before = s.peer.stats()
        s.peer.write(memory, target.remote, require="p2p").wait()
        np.testing.assert_array_equal(target.show(), values)
        view[:] = 0
        s.peer.read(target.remote, memory, require="p2p").wait()
        np.testing.assert_array_equal(view, values)
        after = s.peer.stats()
        assert after["work_requests"] == before["work_requests"]
        counted = {"bytes_out": 1 << 20, "bytes_in": 1 << 20}
        assert after["p2p"] == {**counted, "unanswered": 0, "nbytes_page_locked": 0}
        assert after["bytes_out"] - before["bytes_out"] == 1 << 20


def notified(ep, peer, link, nbytes):
    """Waits for each value in turn, and says what the last word of the memory was then."""
    target, view = array(ep, "empty", np.zeros(nbytes // 8, np.int64))
    link.send(target.remote)
    for value in range(1, link.recv() + 1):
        assert ep.wait_notify(3) == value
        last = int(view[-1])
        assert last >= value, f"notification {value} came before its data ({last})"
        peer.notify(4, value).wait()


@pytest.mark.parametrize("nbytes", [8, 4096, BIG])
def test_a_notification_follows_its_copy(near, nbytes):
    rounds = 5 if nbytes == BIG else 300
    with near(notified, nbytes) as s:
        far = s.link.recv()
        s.link.send(rounds)
        memory, view = array(s.ep, "numpy", np.zeros(nbytes // 8, np.int64))
        for value in range(1, rounds + 1):
            view[:] = value
            transfer = s.peer.write(memory, far, notify=(3, value))
            assert transfer.route.kind == "p2p"
            assert s.ep.wait_notify(4) == value
            transfer.wait()


def sleeper(ep, peer, link):
    while link.recv() == "sleep":
        link.send("ready")
        ep.wait_notify(1, timeout=20)
        link.send(time.monotonic())  # the same clock in every process (man 2 clock_gettime)


def test_who_sleeps_is_woken(near):
    """As soon as by a device. Without a ring it would be the look that comes every 100 ms."""
    with near(sleeper) as s:
        woken_after: dict[str, list[float]] = {"p2p": [], "host": []}
        for _ in range(9):
            for route, times in woken_after.items():
                s.link.send("sleep")
                assert s.link.recv() == "ready"
                threading.Event().wait(0.02)  # what is tested begins after the spin, 200 us
                sent = time.monotonic()
                s.peer.write_many([], notify=(1, 77), require=route).wait()
                times.append(s.link.recv() - sent)
        s.link.send("end")
        by_p2p, by_device = (statistics.median(times) for times in woken_after.values())
        assert by_p2p < by_device + 0.04, woken_after


@P2P
def test_large_copies_do_not_hold_the_caller_up(near, kind):
    """Several are posted in less time than they take, and end in their order."""
    with near(keep) as s:
        target = s.keeper.array(kind, np.zeros(BIG, np.uint8))
        memory, view = array(s.ep, "numpy", pattern(BIG))
        transfers = [s.peer.write(memory, target.remote) for _ in range(6)]
        assert not transfers[-1].done
        last = s.peer.write(memory[:1], target.remote[:1])  # short, but behind the others
        last.wait()
        assert all(transfer.done for transfer in transfers)
        np.testing.assert_array_equal(target.show(), view)


def receiver(ep, peer, link):
    target, view = array(ep, "empty", np.zeros(BIG, np.uint8))
    counter = ep.empty(1, "int64")
    link.send((target.remote, counter.remote))
    word = np.zeros(1, np.int64)
    for value in range(1, 11):
        peer.recv(word, tag=5).wait()
        assert word[0] == value
        # The next copy may be on its way already.
        assert (view[[0, BIG // 2, -1]] >= value).all(), "the message was faster"
    link.send("atomics")
    for value in range(11, 21):
        until(lambda: np.asarray(counter)[0] >= value, "the counter rises")  # noqa: B023
        assert (view[[0, BIG // 2, -1]] >= value).all(), "the atomic was faster"
    link.send("done")


def test_messages_and_atomics_stay_behind_copies(near):
    """What a device carries does not overtake what was copied before."""
    with near(receiver) as s:
        far, counter = s.link.recv()
        memory, view = array(s.ep, "numpy", np.zeros(BIG, np.uint8))
        for value in range(1, 11):
            view[:] = value
            copy = s.peer.write(memory, far)
            s.peer.send(np.array([value]), tag=5)
            copy.wait()
        assert s.link.recv() == "atomics"
        s.peer.fetch_add(counter, 10).wait()
        for value in range(11, 21):
            view[:] = value
            copy = s.peer.write(memory, far)
            s.peer.fetch_add(counter, 1)
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


@pytest.mark.parametrize("side", ["here", "there", "both"])
def test_either_side_may_do_without(partners, monkeypatch, side, by_device):
    monkeypatch.setenv("ZEROHOP_P2P", "1")
    remote = Remote(partners, "process", "soft0")
    here, there = int(side == "there"), int(side == "here")
    with zh.Endpoint("soft0", p2p=here) as ep, remote(keep, endpoint=ep, p2p=there) as s:
        target = s.keeper.array("empty", np.zeros(10))
        memory, _ = array(ep, "numpy", np.ones(10))
        route = s.peer.route(memory, target.remote)
        assert route.kind == by_device
        owner = "the peer's Endpoint" if side == "there" else "this Endpoint"
        assert f"not by p2p, because {owner} has p2p=0" in route.reason
        s.peer.write(memory, target.remote).wait()
        assert target.show().all()
        with pytest.raises(zh.RouteUnavailable, match="p2p=0"):
            s.peer.write(memory, target.remote, require="p2p")


def counts(ep, peer, link):
    word = np.zeros(1, np.int64)
    peer.recv(word, tag=1).wait()
    link.send("received")
    link.meet("end")


def test_messages_hold_p2p_up_only_until_they_have_come(near):
    """A notification follows a message over the device; soon later ones need none again."""
    with near(counts) as s:
        s.peer.send(np.ones(1, np.int64), tag=1).wait()
        assert s.link.recv() == "received"

        def by_itself():
            before = s.peer.stats()["work_requests"]
            s.peer.notify(4, 1).wait()
            return s.peer.stats()["work_requests"] == before

        until(by_itself, "a notification needs no device")
        s.link.meet("end")


def test_a_million_small_writes(near):
    with near(keep) as s:
        target = s.keeper.array("empty", np.zeros(1000, np.int64))
        memory, view = array(s.ep, "numpy", np.arange(1000))
        parts = [(memory[i : i + 1], target.remote[i : i + 1]) for i in range(1000)]
        for _ in range(10):
            s.peer.write_many(parts * 100).wait()
        np.testing.assert_array_equal(target.show(), view)

"""Guarantee 2: a notification is never seen before its data; and what slots mean."""

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.patience import SLOW

ROUNDS = int(400 / SLOW)
SLOTS = 8


def check_rounds(ep, peer, link, kind, nbytes):
    memory, view = array(ep, kind, np.zeros(nbytes // 8, np.uint64))
    link.send(memory.remote)
    for number in range(1, ROUNDS + 1):
        assert ep.wait_notify(3) == number
        wrong = np.flatnonzero(view != number)
        assert wrong.size == 0, f"round {number}: element {wrong[0]} is {view[wrong[0]]}"
        peer.notify(4, number).wait()


@pytest.mark.parametrize("nbytes", [8, 4096, 300_000])
def test_the_data_is_there_when_the_notification_is(remote, kind, nbytes):
    with remote(check_rounds, kind, nbytes) as s:
        far = s.link.recv()
        memory, view = array(s.ep, kind, np.zeros(nbytes // 8, np.uint64))
        for number in range(1, ROUNDS + 1):
            view[:] = number
            transfer = s.peer.write(memory, far, notify=(3, number))
            assert s.ep.wait_notify(4) == number
            transfer.wait()


def check_slots(ep, peer, link, count):
    memory, view = array(ep, "empty", np.zeros((SLOTS, 5000), np.uint32))
    link.send(memory.remote)
    seen = [0] * SLOTS
    for _ in range(count):
        slot, value = ep.wait_notify_any(10, SLOTS)
        row = view[slot - 10]
        assert (row == value).all(), f"slot {slot} says {value}, its data {np.unique(row)}"
        assert value == seen[slot - 10] + 1
        seen[slot - 10] = value
        peer.notify(slot, value).wait()


@pytest.mark.parametrize("verb", ["write", "write_many"])
def test_each_of_many_slots_follows_its_own_data(remote, verb):
    rounds = int(60 / SLOW)
    with remote(check_slots, SLOTS * rounds) as s:
        far = s.link.recv()
        memory, view = array(s.ep, "numpy", np.zeros((SLOTS, 5000), np.uint32))
        for value in range(1, rounds + 1):
            view[:] = value
            for row in range(SLOTS):
                notify = (10 + row, value)
                if verb == "write":
                    s.peer.write(memory[row], far[row], notify=notify)
                else:
                    halves = [(memory[row, i::2], far[row, i::2]) for i in (0, 1)]
                    s.peer.write_many(halves, notify=notify)
            for _ in range(SLOTS):
                assert s.ep.wait_notify_any(10, SLOTS)[1] == value


def notify_on_demand(ep, peer, link):
    while (order := link.recv()) != "end":
        for slot, value in order:
            peer.notify(slot, value).wait()
        link.send("done")


def notified(session, *notifications):
    session.link.send(notifications)
    assert session.link.recv() == "done"


def test_what_becomes_of_a_value(remote):
    """A wait takes it out, unless asked not to; a later one replaces it; each is taken once."""
    with remote(notify_on_demand) as s:
        notified(s, (5, 77))
        assert s.ep.wait_notify(5, reset=False) == s.ep.peek_notify(5) == 77
        assert s.ep.wait_notify_any(0, 9, reset=False) == (5, 77)
        assert s.ep.wait_notify(5) == 77
        assert s.ep.peek_notify(5) == 0
        with pytest.raises(zh.TransferTimeout), within(2, at_least=0.1):
            s.ep.wait_notify(5, timeout=0.1)
        notified(s, (6, 1), (7, 0xFFFFFFFF))
        assert s.ep.wait_notify(7, reset=False) == s.ep.reset_notify(7) == 0xFFFFFFFF
        assert s.ep.reset_notify(7) == s.ep.peek_notify(7) == 0
        assert s.ep.wait_notify(6) == 1
        notified(s, (5, 1), (5, 2), (6, 1))
        assert s.ep.wait_notify(6) == 1  # the later ones of a peer come after the earlier ones
        assert s.ep.wait_notify(5) == 2
        assert s.ep.peek_notify(5) == 0
        s.link.send("end")


def test_wait_any_looks_at_its_own_slots_only(remote):
    with remote(notify_on_demand) as s:
        notified(s, (20, 1), (25, 2))
        with pytest.raises(zh.TransferTimeout):
            s.ep.wait_notify_any(21, 4, timeout=0.1)
        assert s.ep.wait_notify_any(21, 5) == (25, 2)
        assert s.ep.wait_notify_any(0, 21) == (20, 1)
        s.link.send("end")


def await_value(ep, peer, link, slot, value):
    link.send(ep.empty((0, 3)).remote)
    assert ep.wait_notify(slot) == value
    link.send("seen")


@pytest.mark.parametrize("verb", ["notify", "write", "write_many"])
def test_an_empty_transfer_notifies(remote, verb):
    with remote(await_value, 12, 34) as s:
        far = s.link.recv()
        if verb == "notify":
            s.peer.notify(12, 34).wait()
        elif verb == "write":
            s.peer.write(s.ep.empty((0, 3)), far, notify=(12, 34)).wait()
        else:
            s.peer.write_many([], notify=(12, 34)).wait()
        assert s.link.recv() == "seen"


BAD = [(0, 0), (0, -1), (0, 1 << 32), (-1, 1), (1 << 31, 1), (1 << 40, 1)]


@pytest.mark.parametrize("bad", BAD)
def test_bad_slots_and_values_are_refused(thread, bad):
    with thread(notify_on_demand) as s:
        with pytest.raises((ValueError, IndexError, OverflowError, TypeError)):
            s.peer.notify(*bad)
        with pytest.raises((ValueError, IndexError, OverflowError, TypeError)):
            s.peer.write_many([], notify=bad)
        s.link.send("end")


@pytest.mark.parametrize("slot", [-1, 1 << 31, 1 << 40])
@pytest.mark.parametrize("call", ["wait_notify", "peek_notify", "reset_notify"])
def test_slots_out_of_range_are_refused_here_too(open_endpoint, slot, call):
    with pytest.raises((ValueError, IndexError, OverflowError, TypeError)):
        getattr(open_endpoint(), call)(slot)


def test_an_endpoint_notifies_itself(open_endpoint):
    ep = open_endpoint()
    waiting = Attempt(ep.wait_notify_any, 5, 100)  # asleep when the value comes
    waiting.stays_pending(0.2)
    with within(2):
        assert ep.notify(60, 0xFFFFFFFF) is None
        assert waiting.value() == (60, 0xFFFFFFFF)
    ep.notify(65535, 1)
    ep.notify(65535, 2)
    assert ep.wait_notify(65535) == 2
    assert ep.peek_notify(65535) == 0
    for slot in (-1, 65536, 1 << 40):
        with pytest.raises(IndexError, match="slots go from 0 to 65535"):
            ep.notify(slot, 1)
    for value in (0, -1, 1 << 32):
        with pytest.raises(ValueError, match="notification value"):
            ep.notify(1, value)
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError, match="must be an int"):
            ep.notify(1, wrong)
    assert ep.peek_notify(1) == 0
    ep.close()
    with pytest.raises(zh.Error, match="closed"):
        ep.notify(1, 1)


def notify_many(ep, peer, link, slot, count):
    for value in range(1, count + 1):
        peer.notify(slot, value).wait()
        assert ep.wait_notify(slot) == value


def test_notifications_of_two_peers_come_to_one_board(remote):
    with remote(notify_many, 1, 150) as a, remote(notify_many, 2, 150, endpoint=a.ep) as b:
        peers = {1: a.peer, 2: b.peer}
        for _ in range(300):
            slot, value = a.ep.wait_notify_any(0, 5)
            peers[slot].notify(slot, value).wait()

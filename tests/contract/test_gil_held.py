"""A process whose GIL is held for longer than a silent peer is given: its progress needs none, so nobody loses it."""

import ctypes
import time

import numpy as np
from support.arrays import array, block
from support.attempt import LOST_WITHIN, within
from support.operations import BIG

HELD = LOST_WITHIN + 3  # seconds


KINDS = ("numpy", "empty")


def hold_the_gil(ep, peer, link):
    """In C: unlike Python code, it gives nobody else a turn. What was posted before goes on."""
    held = [array(ep, kind, np.zeros(1000, np.uint32)) for kind in KINDS]
    counter, _ = array(ep, "counter", np.zeros(1, np.int64))
    messages = ep.empty((10, 8))
    receiving = [peer.recv(messages[number], tag=number) for number in range(10)]
    source = ep.empty(BIG)
    np.asarray(source)[:] = 7
    link.send(([memory.remote for memory, _ in held], counter.remote))
    writing = peer.write(source, peer.lookup("here"), notify=(5, 1))
    ctypes.PyDLL(None).usleep(int(HELD * 1e6))
    assert peer.alive
    writing.wait(0)
    for message in receiving:
        message.wait(0)
    link.send(([view.copy() for _, view in held], np.asarray(messages)[:, 0].copy()))


def test_a_peer_is_served_all_the_time_and_not_lost(process):
    with process(hold_the_gil, deadline=40) as s:
        here = block(s.ep, "numpy", BIG)
        s.ep.share("here", here.memory)
        far, counter = s.link.recv()
        begin = time.monotonic()
        with within(LOST_WITHIN):
            s.ep.wait_notify(5, timeout=LOST_WITHIN)  # what it had begun comes to its end
        assert (here.bytes == 7).all()
        source, values = array(s.ep, "numpy", np.zeros(1000, np.uint32))
        back, found = array(s.ep, "numpy", np.zeros(1000, np.uint32))
        for number in range(10):
            s.peer.send(s.ep.register(np.full(8, number, np.uint8)), tag=number).wait(5.0)
        rounds = 0
        while time.monotonic() < begin + LOST_WITHIN + 1:
            rounds += 1
            values[:] = rounds
            for memory in far:
                found[:] = 0
                s.peer.write(source, memory).wait(2.0)
                s.peer.read(memory, back).wait(2.0)
                assert (found == rounds).all()
            assert s.peer.fetch_add(counter[0], 1).wait(2.0) == rounds - 1
        assert s.peer.alive
        views, heard = s.link.recv(20)
        assert all((view == rounds).all() for view in views)
        assert heard.tolist() == list(range(10))


def hold_and_notify(ep, peer, link):
    ctypes.PyDLL(None).usleep(int(HELD * 1e6))
    peer.notify(6, 1).wait()


def test_it_is_not_lost_to_those_who_only_wait(process):
    with process(hold_and_notify, deadline=40) as s:
        assert s.ep.wait_notify(6, timeout=20) == 1
        assert s.peer.alive

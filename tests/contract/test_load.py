"""Depth: a million posted operations neither fail nor pile up memory."""

import numpy as np
import pytest
from support.arrays import array
from support.keeper import keep
from support.patience import SLOW
from support.system import resident_nbytes

MILLION = int(1_000_000 / SLOW**2)  # a slow machine gets through fewer in the time of a test
GROWTH = 48 << 20  # bytes; far less than a million of anything


@pytest.mark.timeout(120)
def test_a_million_posted_writes(process):
    """Nobody waits in between: posting itself must hold back when the queue is full."""
    with process(keep, timeout=60.0) as s:
        kept = s.keeper.array("numpy", np.zeros(1024, np.uint64))
        memory, view = array(s.ep, "numpy", np.arange(1024, dtype=np.uint64))
        pairs = [(memory[i], kept.remote[i]) for i in range(1024)]
        for source, target in pairs * 20:
            s.peer.write(source, target)
        before = resident_nbytes()
        write = s.peer.write
        for number in range(MILLION):
            transfer = write(*pairs[number & 1023])
        transfer.wait()
        assert resident_nbytes() - before < GROWTH
        np.testing.assert_array_equal(kept.show(), view)


def count_notifications(ep, peer, link, count):
    """Each value of each slot is seen at most once and in order; the last one is seen."""
    last = [0] * 8
    while min(last) < count:
        slot, value = ep.wait_notify_any(0, 8)
        assert value > last[slot]
        last[slot] = value
    peer.notify(0, 1).wait()


def test_many_posted_notifications(remote):
    """The receiver's queue is refilled as fast as notifications come: none is lost."""
    count = int(4000 / SLOW)
    with remote(count_notifications, count) as s:
        for value in range(1, count + 1):
            for slot in range(8):
                s.peer.notify(slot, value)
        assert s.ep.wait_notify(0) == 1


@pytest.mark.parametrize("send_depth", [1, 2, 16])
def test_shallow_queues_only_cost_time(remote, send_depth):
    with remote(keep, send_depth=send_depth) as s:
        kept = s.keeper.array("numpy", np.zeros((300, 50)))
        memory, view = array(s.ep, "numpy", np.random.default_rng(0).random((300, 50)))
        pairs = [(memory[i], kept.remote[i]) for i in range(300)]
        s.peer.write_many(pairs, notify=(1, 1)).wait()
        np.testing.assert_array_equal(kept.show(), view)
        transfers = [s.peer.write(memory[i, ::2], kept.remote[i, 1::2]) for i in range(300)]
        sums = [s.peer.notify(2, n + 1) for n in range(300)]
        for transfer in transfers + sums:
            transfer.wait()
        np.testing.assert_array_equal(kept.show()[:, 1::2], view[:, ::2])


def test_memory_of_messages_is_given_back(process):
    """Unexpected messages take memory until they are received, and no longer."""
    nbytes, count = 4000, int(3000 / SLOW)
    with process(send_then_wait, nbytes, count) as s:
        sink = s.ep.empty(nbytes)
        for turn in range(4):
            s.link.meet("sent")
            for _ in range(count):
                s.peer.recv(sink, tag=1).wait()
            if turn == 0:
                before = resident_nbytes()
            s.link.meet("received")
        assert resident_nbytes() - before < 16 << 20


def send_then_wait(ep, peer, link, nbytes, count):
    memory = ep.empty(nbytes)
    for _ in range(4):
        transfers = [peer.send(memory, tag=1) for _ in range(count)]
        link.meet("sent")
        for transfer in transfers:
            transfer.wait()
        link.meet("received")

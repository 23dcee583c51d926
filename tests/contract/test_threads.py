"""Waiting blocks the waiter only: the GIL is free, and many threads may wait for one thing."""

import threading
import time

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.keeper import keep
from support.link import until
from support.operations import WAITS


class Counter:
    """Counts in a thread of pure Python, as long as it gets the GIL."""

    def __init__(self):
        self.count, self._stop = 0, False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop:
            self.count += 1
            time.sleep(0)  # gives the GIL away as ordinary code does

    def __enter__(self):
        self._thread.start()
        until(lambda: self.count > 100, "the counter runs")
        return self

    def __exit__(self, *_):
        self._stop = True
        self._thread.join(5)


@pytest.mark.parametrize("name", WAITS)
def test_python_runs_on_while_a_thread_waits(thread, name):
    with thread(keep) as s, Counter() as counter:
        before = counter.count
        with pytest.raises(zh.TransferTimeout):
            WAITS[name](s, 0.3)
        assert counter.count - before > 200


def test_python_runs_on_while_large_data_is_posted_and_awaited(remote):
    with remote(keep) as s, Counter() as counter:
        target = s.keeper.array("empty", np.zeros(64 << 20, np.uint8))
        memory = s.ep.empty(64 << 20)
        before, writes = counter.count, 4
        for _ in range(writes):
            s.peer.write(memory, target.remote).wait()
        assert counter.count - before > 5 * writes  # between calls it gets one turn at most


def answer(ep, peer, link):
    link.meet("all wait")
    peer.send(np.arange(50), tag=3).wait()


def test_many_threads_wait_for_one_transfer(remote):
    with remote(answer) as s:
        sink = np.zeros(50, int)
        transfer = s.peer.recv(sink, tag=3)
        waiting = [Attempt(transfer.wait) for _ in range(16)]
        impatient = Attempt(transfer.wait, 0.05)
        impatient.failure(zh.TransferTimeout)
        s.link.meet("all wait")
        assert [attempt.value() for attempt in waiting] == [sink.nbytes] * 16
        assert sink.tolist() == list(range(50))


def notify_in_turn(ep, peer, link, count):
    for value in range(1, count + 1):
        peer.notify(7, value).wait()
        assert ep.wait_notify(8) == value  # taken by one of the waiters


def test_a_value_goes_to_exactly_one_of_the_threads_that_wait_for_it(remote):
    count, taken = 200, []

    def take(session):
        while len(taken) < count:
            try:
                value = session.ep.wait_notify(7, timeout=0.2)
            except zh.TransferTimeout:
                continue
            taken.append(value)
            session.peer.notify(8, value).wait()

    with remote(notify_in_turn, count) as s:
        for attempt in [Attempt(take, s) for _ in range(4)]:
            attempt.value(40)
        assert sorted(taken) == list(range(1, count + 1))


def test_a_waiting_thread_serves_the_others(remote):
    """Whoever polls the queue: the completions of other threads do not wait for it to return."""
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.zeros(100))
        memory, _ = array(s.ep, "numpy", np.ones(100))
        long_wait = Attempt(s.ep.wait_notify, 3, 2.0)
        with within(1.5):
            for _ in range(200):
                s.peer.write(memory, target.remote).wait()
        assert long_wait.pending
        long_wait.failure(zh.TransferTimeout)


def test_registering_and_dropping_from_many_threads(remote):
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.zeros(1000))
        shared = np.ones(1000)

        def work():
            for _ in range(100):
                s.peer.write(s.ep.register(shared), target.remote).wait()
                s.peer.write(s.ep.register(np.ones(1000)), target.remote).wait()

        for attempt in [Attempt(work) for _ in range(6)]:
            attempt.value()
        assert target.show().all()


def test_closing_while_other_threads_use_everything(remote):
    """A close in the middle of a crowd: each thread ends with a typed error, none hangs."""
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.zeros(1000))
        running = threading.Barrier(6)

        def work():
            running.wait(10)
            while True:
                s.peer.write(s.ep.register(np.ones(1000)), target.remote).wait()

        crowd = [Attempt(work) for _ in range(5)]
        running.wait(10)
        s.ep.close()
        for attempt in crowd:
            attempt.failure((zh.Error, ValueError), timeout=10)

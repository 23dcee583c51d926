"""fork while transfers of every kind are under way: those of the parent end well, the child is refused in words."""

import os

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.forking import forking
from support.keeper import keep
from support.link import until

NBYTES = 1 << 20
PAGES = 64


class Traffic:
    """All that this side does, round by round, each kind in a thread of its own, with memory of its own at the keeper."""

    def __init__(self, session, keeper, kind):
        self.ep, self.peer, self.stop = session.ep, session.peer, False
        self.kinds = [self.write, self.read, self.pages, self.count, self.message, self.notify]
        zeros, values = np.zeros(NBYTES, np.uint8), np.arange(NBYTES).astype(np.uint8)
        self.written, self.read_from, self.paged = (
            keeper.array(kind, each) for each in (zeros, values, zeros.reshape(PAGES, -1))
        )
        self.counter = keeper.array("counter", np.zeros(1, np.int64))
        self.values = values
        self.rounds = dict.fromkeys([each.__name__ for each in self.kinds], 0)
        self.source, _ = array(session.ep, kind, values)
        self.sink, self.found = array(session.ep, kind, zeros)
        self.rows, _ = array(session.ep, kind, values.reshape(PAGES, -1))

    def go(self, one):
        while not self.stop:
            one()
            self.rounds[one.__name__] += 1

    def write(self):
        self.peer.write(self.source, self.written.remote).wait()

    def read(self):
        self.peer.read(self.read_from.remote, self.sink).wait()
        assert (self.found == self.values).all()

    def pages(self):
        order = range(PAGES)
        self.peer.write_pages(self.rows, self.paged.remote, order, order).wait()

    def count(self):
        before = self.peer.fetch_add(self.counter.remote[0], 1).wait()
        assert before == self.rounds["count"]

    def message(self):
        self.peer.send(self.ep.register(self.values[:100]), tag=1).wait()

    def notify(self):
        self.peer.notify(3, 1).wait()

    def go_on(self):
        before = dict(self.rounds)
        until(lambda: all(self.rounds[name] > count for name, count in before.items()), "a round")


def keep_and_take(ep, peer, link):
    """Takes messages meanwhile."""
    into = ep.empty(100)

    def take():
        while True:
            peer.recv(into, tag=1).wait(60)

    taking = Attempt(take)
    keep(ep, peer, link)
    del taking


def refused(call):
    try:
        with within(2.0):
            call()
    except zh.Error as error:
        return "fork" in str(error)
    return False


@pytest.mark.parametrize("kind", ["numpy", "empty"])
def test_transfers_of_the_parent_end_well_while_children_live(process, kind):
    with process(keep_and_take) as s:
        keeper = s.keeper
        traffic = Traffic(s, keeper, kind)
        running = [Attempt(traffic.go, one) for one in traffic.kinds]
        traffic.go_on()
        reader, writer = os.pipe()
        children = []
        for _ in range(4):
            with forking():
                child = os.fork()
            if child == 0:
                code = 2  # an exception that nothing here expects: it may not come to pytest
                try:
                    os.close(writer)
                    well = all(map(refused, traffic.kinds)) and refused(lambda: s.ep.empty(8))
                    os.read(reader, 1)  # until the parent is through
                    code = 0 if well else 1
                finally:
                    os._exit(code)
            children.append(child)
            traffic.go_on()
        os.close(writer)  # of all: the end of the file ends the children
        traffic.stop = True
        for each in running:
            each.value()
        for child in children:
            until(lambda child=child: ended_well(child), "the child was refused everything", 20)
        os.close(reader)
        for kept in (traffic.written, traffic.paged):
            np.testing.assert_array_equal(kept.show().reshape(-1), traffic.values)
        assert keeper.array("numpy", np.zeros(1)).show()[0] == 0


def ended_well(child):
    pid, status = os.waitpid(child, os.WNOHANG)
    assert status == 0, f"the child ended with {status}"
    return pid == child

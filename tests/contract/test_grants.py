"""Rights that can be taken back: nobody reads or writes by them once revoke() has returned."""

import time

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.forge import Forged, forge
from support.link import until
from support.patience import patient
from support.refusals import CODES

NBYTES = 4096


def give(ep, peer, link):
    """Grants what it is asked to, and shows what became of the memory."""
    memory, view = array(ep, link.recv(), np.arange(NBYTES, dtype=np.uint8))
    grants = []
    while True:
        order, *values = link.recv()
        if order == "end":
            return
        if order == "grant":
            first, last, writable, timeout = values
            grants.append(ep.grant(memory[first:last], writable=writable, timeout=timeout))
            link.send(grants[-1].remote)
        elif order == "revoke":
            grants[values[0]].revoke()
            link.send(view.copy())
        elif order == "ended":
            link.send(grants[values[0]].revoked)
        elif order == "close":
            memory.close()
            link.send([grant.revoked for grant in grants])
        elif order == "show":
            link.send(view.copy())


class Giver:
    def __init__(self, session, kind):
        self._link = session.link
        self._link.send(kind)

    def grant(self, first=0, last=NBYTES, *, writable=False, timeout=None):
        return self.ask("grant", first, last, writable, timeout)

    def ask(self, *order):
        self._link.send(order)
        return self._link.recv()

    def end(self):
        self._link.send(("end",))


def refused(call):
    """For want of a right, not by a queue pair that is yet to recover: something that is allowed goes in between."""
    with pytest.raises(zh.VerbsError) as error, within(10):
        call().wait()
    assert error.value.code in CODES


def test_a_grant_to_read_allows_no_more(remote, kind):
    with remote(give) as s:
        giver = Giver(s, kind)
        far = giver.grant(100, 200)
        memory, view = array(s.ep, "numpy", np.zeros(100, np.uint8))
        s.peer.read(far, memory).wait()
        assert view.tolist() == list(range(100, 200))
        before = giver.ask("show")
        for call in (
            lambda: s.peer.write(memory, forge(far, access=3)),
            lambda: s.peer.read(forge(far, moved=-1), memory),  # a key of its own, to the byte
            lambda: s.peer.read(forge(far, moved=1), memory),
        ):
            refused(call)
            s.peer.read(far, memory).wait()
        np.testing.assert_array_equal(giver.ask("show"), before)
        assert Forged.of(far).access & 3 == 1
        giver.end()


@pytest.mark.parametrize("writable", [False, True])
def test_a_revoked_grant_is_refused_and_the_others_go_on(remote, kind, writable):
    with remote(give) as s:
        giver = Giver(s, kind)
        first, second = giver.grant(writable=writable), giver.grant(writable=True)
        memory, view = array(s.ep, "numpy", np.full(NBYTES, 7, np.uint8))
        s.peer.write(memory, second).wait()
        s.peer.read(first, memory).wait()
        before = giver.ask("revoke", 0)
        view[:] = 9
        for call in (s.peer.write, lambda near, far: s.peer.read(far, near)):
            refused(lambda call=call: call(memory, forge(first, access=3)))
            np.testing.assert_array_equal(giver.ask("show"), before)
            s.peer.read(second, memory).wait()
        view[:] = 9
        s.peer.write(memory, second).wait()
        assert (giver.ask("show") == 9).all()
        giver.end()


def test_nothing_is_written_after_revoke_has_returned(remote):
    """A peer writes without end; what revoke() leaves behind is what stays."""
    with remote(give) as s:
        giver = Giver(s, "empty")
        far = giver.grant(writable=True)
        flood = Attempt(write_for_ever, s, far)
        until(lambda: giver.ask("show")[0] > 0, "something is written", 10)
        left = giver.ask("revoke", 0)
        assert flood.failure(zh.VerbsError, timeout=10).code in CODES
        np.testing.assert_array_equal(giver.ask("show"), left)
        giver.end()


def write_for_ever(session, far):
    number = 0
    while True:
        number = number % 250 + 1
        session.peer.write(np.full(NBYTES, number, np.uint8), far).wait()


def test_a_grant_ends_when_its_time_is_over(process, kind):
    with process(give) as s:
        giver = Giver(s, kind)
        memory, _ = array(s.ep, "numpy", np.zeros(NBYTES, np.uint8))
        lasting = giver.grant(timeout=1000)
        s.peer.read(lasting, memory).wait()  # what the first one takes longer for is done
        begin, lasts = time.monotonic(), patient(2)
        far = giver.grant(timeout=lasts)
        s.peer.read(far, memory).wait()
        until(lambda: giver.ask("ended", 1), "its time is over", 20)
        assert time.monotonic() - begin >= lasts
        refused(lambda: s.peer.read(far, memory))
        s.peer.read(lasting, memory).wait()
        giver.end()


def test_a_grant_ends_with_its_memory(remote, kind):
    with remote(give) as s:
        giver = Giver(s, kind)
        far = giver.grant(writable=True)
        memory, _ = array(s.ep, "numpy", np.zeros(NBYTES, np.uint8))
        s.peer.write(memory, far).wait()
        assert giver.ask("close") == [True]
        refused(lambda: s.peer.write(memory, far))
        giver.end()


def test_what_can_be_revoked_is_mapped_by_nobody(near_process):
    with near_process(give) as s:
        giver = Giver(s, "empty")
        far = giver.grant()
        memory, _ = array(s.ep, "numpy", np.zeros(NBYTES, np.uint8))
        route = s.peer.route(memory, far)
        assert route.kind != "p2p"
        assert "revoked" in str(route)
        s.peer.read(far, memory).wait()
        giver.end()


def test_the_object(open_endpoint):
    ep, other = open_endpoint(), open_endpoint()
    memory = ep.register(np.zeros(10))
    with ep.grant(memory[2:4], writable=True) as grant:
        assert grant.writable
        assert not grant.revoked
        assert grant.remote.shape == (2,)
        assert repr(grant) == "<zerohop.Grant to write (2,) float64>"
    assert grant.revoked
    assert repr(grant) == "<zerohop.Grant to write (2,) float64, revoked>"
    grant.revoke()
    with pytest.raises(zh.RegistrationError, match=r"it was revoked.*call grant\(\) again"):
        _ = grant.remote
    short = ep.grant(memory, timeout=0.25)
    until(lambda: short.revoked, "its time is over", 20)
    with pytest.raises(zh.RegistrationError, match=r"its 0.25 s have passed; call grant\(\) again"):
        _ = short.remote
    with pytest.raises(zh.RegistrationError, match="another Endpoint"):
        other.grant(memory)
    with pytest.raises(ValueError, match="read-only"):
        ep.grant(ep.register(np.zeros(10), writable=False), writable=True)
    with pytest.raises(ValueError, match="timeout"):
        ep.grant(memory, timeout=-1)
    with pytest.raises(TypeError):
        ep.grant(np.zeros(10))
    memory.close()
    with pytest.raises(zh.RegistrationError):
        ep.grant(memory)

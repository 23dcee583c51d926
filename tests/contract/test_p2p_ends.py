"""How p2p between processes of one host ends: closed, killed, stopped, out of descriptors."""

import gc
import os
import resource
import signal

import numpy as np
import pytest
import zerohop as zh
from support.arrays import GPUS, array
from support.attempt import Attempt, within
from support.forking import forking
from support.keeper import keep
from support.link import until

BIG = 64 << 20  # bytes: longer than a call may take
P2P = pytest.mark.parametrize("kind", ["empty", "numpy"])  # mapped pages; memory of another process


def closes_meanwhile(ep, peer, link, kind, what):
    memory, view = array(ep, kind, np.zeros(BIG, np.uint8))
    link.send(memory.remote)
    link.meet("writing")
    (peer if what == "peer" else memory).close()
    view[:] = 7
    link.meet("written")
    assert (view == 7).all(), "written after close()"


@P2P
@pytest.mark.parametrize("what", ["memory", "peer"])
def test_what_is_closed_in_mid_copy_is_left_alone(near, kind, what):
    """Until the error comes there is always a copy under way."""
    expected = zh.PeerLost if what == "peer" else zh.VerbsError
    with near(closes_meanwhile, kind, what) as s:
        far = s.link.recv()
        memory, _ = array(s.ep, "numpy", np.ones(BIG, np.uint8))

        def for_ever():
            flowing = [s.peer.write(memory, far)]
            while True:
                flowing.append(s.peer.write(memory, far))
                flowing.pop(0).wait()

        s.peer.write(memory, far).wait()
        writing = Attempt(for_ever)
        s.link.meet("writing")
        error = writing.failure(expected)
        # A GPU may have ended a whole copy before anyone looks.
        assert error.effect in ("nothing", "some", *["all"] * bool(GPUS))
        s.link.meet("written")
        until(lambda: s.peer.alive == (what == "memory"), f"what a closed {what} does to the Peer")


def closes_its_peer(ep, peer, link):
    memory, view = array(ep, "empty", np.zeros(8, np.int64))
    link.send(memory.remote)
    link.meet("mapped")
    peer.close()
    link.send((view.copy(), ep.peek_notify(5)))
    link.meet("tried")
    link.send((view.copy(), ep.peek_notify(5)))


def test_a_closed_peer_neither_writes_nor_notifies(near):
    """Though the other end may not know yet."""
    with near(closes_its_peer) as s:
        far = s.link.recv()
        memory, view = array(s.ep, "numpy", np.ones(8, np.int64))

        def for_ever():
            while True:
                view[:] = view + 1
                s.peer.write(memory, far, notify=(5, int(view[0]))).wait()

        s.peer.write(memory, far, require="p2p").wait()
        writing = Attempt(for_ever)
        s.link.meet("mapped")
        then = s.link.recv()
        writing.failure(zh.PeerLost)
        s.link.meet("tried")
        now = s.link.recv()
        np.testing.assert_array_equal(then[0], now[0])
        assert then[1] == now[1]


def writes_when_asked(ep, peer, link):
    far = link.recv()
    memory, _ = array(ep, "numpy", np.ones(4096, np.uint8))
    peer.write(memory[:1], far[:1], require="p2p").wait()
    link.meet("mapped")
    link.meet("forked")
    peer.write(memory, far, require="p2p").wait()
    link.send("written")


def test_a_forked_child_that_drops_memory_does_not_close_it(near):
    with near(writes_when_asked) as s:
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


def test_a_peer_that_stands_still_is_asked_in_vain_but_not_for_long(near_process, by_device):
    """Its memory is mapped at the first transfer, and it does not answer: a device takes over."""
    patient = {"ack_timeout": 20}  # 4 s: the peer stands still for less, on a busy machine too
    with near_process(keep, timeout=30.0, **patient) as s:
        target = s.keeper.array("empty", np.zeros(10))
        other = s.keeper.array("empty", np.zeros(10))
        memory, _ = array(s.ep, "numpy", np.ones(10))
        s.signal(signal.SIGSTOP)
        with within(0.8):  # less than the second that it may take to answer
            taken = s.peer.write(memory, target.remote, timeout=0.05)
        assert taken.route.kind == by_device
        assert s.peer.stats()["p2p"]["unanswered"] == 1
        with within(0.8):  # it is not waited for again
            taken = s.peer.write(memory, other.remote)
        assert taken.route.kind == by_device
        assert "did not answer" in s.peer.route(memory, target.remote).reason
        with within(3.0), pytest.raises(zh.RouteUnavailable, match="did not answer"):
            s.peer.write(memory, target.remote, require="p2p")
        s.signal(signal.SIGCONT)
        s.peer.write(memory, target.remote, require="p2p").wait()
        taken.wait()
        assert target.show().all()
        assert other.show().all()


def test_who_asks_keeps_nobody_from_leaving(near_process):
    """The progress thread ends the connection while a call waits for a peer that stands still."""
    with near_process(keep, timeout=30.0) as s:
        target = s.keeper.array("empty", np.zeros(10))
        memory, _ = array(s.ep, "numpy", np.ones(10))
        s.signal(signal.SIGSTOP)
        waiting = Attempt(lambda: s.peer.write(memory, target.remote, require="p2p"))
        s.peer.close(timeout=0)
        assert not s.peer.alive
        waiting.failure(zh.Error)


def test_a_lack_of_descriptors_passes(near_process):
    """The first visit fails for want of one; p2p is tried again later."""
    with near_process(keep) as s:
        target = s.keeper.array("empty", np.zeros(10))
        memory, _ = array(s.ep, "numpy", np.ones(10))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            scarce = s.peer.route(memory, target.remote)
            transfer = s.peer.write(memory, target.remote)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert scarce.kind == transfer.route.kind == "host"
        assert "open files" in scarce.reason
        transfer.wait()
        until(lambda: s.peer.route(memory, target.remote).kind == "p2p", "p2p is tried again")
        s.peer.write(memory, target.remote, require="p2p").wait()


def becomes_another_user(ep, peer, link):
    memory, view = array(ep, "empty", np.zeros(10))
    far = link.recv()
    os.seteuid(65534)
    try:
        link.send(memory.remote)
        link.meet("written")
        link.send((peer.route(memory, far).reason, view.copy()))
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_processes_of_two_users_do_not_let_each_other_in(near_process, by_device):
    with near_process(becomes_another_user) as s:
        target, _ = array(s.ep, "empty", np.zeros(10))
        s.link.send(target.remote)
        far = s.link.recv()
        memory, _ = array(s.ep, "numpy", np.ones(10))
        route = s.peer.route(memory, far)
        assert route.kind == by_device
        assert "not by p2p, because it" in route.reason  # ... ended the visit, or its socket
        s.peer.write(memory, far).wait()
        s.link.meet("written")
        reason, seen = s.link.recv()
        assert "not by p2p, because its process is another user's" in reason
        assert seen.all()

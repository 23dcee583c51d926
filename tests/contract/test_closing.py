"""Closing: in good order, in the middle of things, from both sides, and what is said afterwards."""

import gc
from contextlib import suppress

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import LOST_WITHIN, Attempt, within
from support.keeper import keep
from support.link import until
from support.operations import USES
from support.system import device_descriptors, socket_inodes


def close_when_asked(ep, peer, link, what):
    far = ep.empty(1000)
    link.send(far.remote)
    link.meet("close")
    (ep if what == "endpoint" else peer).close()
    link.meet("closed")
    link.recv(30)


@pytest.mark.parametrize("what", ["endpoint", "peer"])
def test_the_close_of_the_other_side_ends_what_waits_for_it(remote, what):
    with remote(close_when_asked, what) as s:
        far = s.link.recv()
        sink = s.ep.empty(1000)
        pending = [s.peer.recv(sink[:8], tag=tag) for tag in range(5)]
        looking = Attempt(s.peer.lookup, "nothing")
        s.link.meet("close")
        with within(LOST_WITHIN):
            for transfer in pending:
                with pytest.raises(zh.PeerLost):
                    transfer.wait()
            looking.failure(zh.PeerLost)
        s.link.meet("closed")
        assert not s.peer.alive
        with pytest.raises(zh.PeerLost):
            s.peer.write(sink, far).wait()
        s.link.send("end")


@pytest.mark.parametrize("what", ["endpoint", "peer"])
def test_own_close_ends_what_waits(remote, what):
    with remote(keep) as s:
        waits = [Attempt(s.peer.recv(s.ep.empty(8), tag=tag).wait) for tag in range(3)]
        waits += [Attempt(s.peer.lookup, "nothing")]
        if what == "endpoint":
            waits += [Attempt(s.ep.wait_notify, 3), Attempt(s.ep.wait_notify_any, 3, 4)]
            waits += [Attempt(s.ep.accept)]
        with within(LOST_WITHIN):
            (s.ep if what == "endpoint" else s.peer).close()
            for waiting in waits:
                waiting.failure(zh.Error)


def test_close_waits_for_nothing_that_is_still_on_its_way(remote):
    """Closing amid large transfers is quick; each of them ends, well or with an error."""
    with remote(keep) as s:
        nbytes = 8 << 20
        target = s.keeper.array("empty", np.zeros(nbytes, np.uint8))
        memory = s.ep.empty(nbytes)
        transfers = [s.peer.write(memory, target.remote) for _ in range(10)]
        with within(LOST_WITHIN):
            s.ep.close()
        for transfer in transfers:
            assert transfer.done
            with suppress(zh.Error):  # either way; but never TransferTimeout's "goes on"
                transfer.wait(1)


def receive_the_second(ep, peer, link):
    link.meet("sent")
    peer.recv(ep.empty(1 << 20), tag=2).wait()
    link.meet("received")
    until(lambda: not peer.alive, "the peer has left", LOST_WITHIN)


@pytest.mark.parametrize("what", ["endpoint", "peer"])
def test_close_does_not_wait_for_a_recv_of_the_other_side(remote, what):
    """A large send is done when it is received; what nobody received by then ends with PeerLost."""
    with remote(receive_the_second) as s:
        memory = s.ep.empty(1 << 20)
        never, taken = s.peer.send(memory, tag=1), s.peer.send(memory, tag=2)
        s.link.meet("sent")
        taken.wait()
        s.link.meet("received")
        with within(LOST_WITHIN), pytest.warns(RuntimeWarning, match=r"dropped 1 send\(\)"):
            (s.ep if what == "endpoint" else s.peer).close()
        with pytest.raises(zh.PeerLost, match=r"no recv\(\) there had taken this send\(\)"):
            never.wait(LOST_WITHIN)
        s.ep.close()  # again: nothing is left to be dropped, and nothing said


def test_a_closed_endpoint_says_that_it_is_closed(remote):
    with remote(keep) as s:
        far = s.keeper.array("numpy", np.zeros(8, int)).remote
        memory, _ = array(s.ep, "numpy", np.zeros(8, int))
        assert not s.ep.closed
        s.ep.close()
        assert s.ep.closed
        for name, use in USES.items():
            with pytest.raises((zh.Error, ValueError), match="closed") as caught, within(1):
                use(s, memory, far)
            assert type(caught.value) is not Exception, name
        s.ep.close()  # again: nothing happens
        assert not s.peer.alive


def close_at_once(ep, peer, link):
    sink = ep.empty(1 << 20)
    pending = [peer.recv(sink, tag=1), peer.recv(sink[:5], tag=2)]
    link.meet("both")
    ep.close()
    for transfer in pending:
        with pytest.raises(zh.Error):
            transfer.wait()


@pytest.mark.filterwarnings("ignore:close.. dropped 1 send:RuntimeWarning")  # by who is first
def test_both_sides_close_at_the_same_time(remote):
    for _ in range(8):
        with remote(close_at_once) as s:
            memory = s.ep.empty(1 << 20)
            transfer = s.peer.send(memory, tag=3)
            s.link.meet("both")
            s.ep.close()
            with pytest.raises(zh.Error):
                transfer.wait()


def reconnect(ep, peer, link):
    for _ in range(5):
        link.meet("leave")
        until(lambda peer=peer: not peer.alive, "the left peer is not alive", LOST_WITHIN)
        peer = ep.accept(timeout=10)
        memory = ep.empty(8)
        peer.recv(memory).wait()


def test_a_closed_peer_can_be_connected_again(remote):
    with remote(reconnect) as s:
        peer = s.peer
        for _ in range(5):
            s.link.meet("leave")
            peer.close()
            assert not peer.alive
            fresh = s.ep.connect(s.address)
            assert fresh != peer
            peer = fresh
            assert peer.alive
            peer.send(s.ep.empty(8)).wait()


def lose_the_second(ep, peer, link):
    second = ep.accept(timeout=10)
    link.meet("accepted")
    until(lambda: not second.alive, "the dropped peer is not alive", LOST_WITHIN)
    assert peer.alive


def test_an_endpoint_that_is_dropped_closes_itself(remote, device):
    with remote(lose_the_second) as s:
        ep = zh.Endpoint(device, timeout=10)
        peer = ep.connect(s.address)
        s.link.meet("accepted")
        assert peer.alive
        del ep, peer
        gc.collect()
        s.returned()
        s.release()


def test_opening_and_closing_leaves_nothing_behind(device):
    def open_and_close():
        with zh.Endpoint(device) as a, zh.Endpoint(device) as b:
            a.connect(b.address)

    open_and_close()  # what is loaded once is loaded now
    before = len(socket_inodes())
    for _ in range(20):
        open_and_close()
    until(lambda: len(socket_inodes()) <= before, "all sockets are closed")


def test_closing_lets_go_of_the_device_whatever_is_kept(device):
    """Names stay around in a notebook; a device that is to be removed waits for who has it open."""
    before = device_descriptors()
    with zh.Endpoint(device) as a, zh.Endpoint(device) as b:
        kept = [a.connect(b.address), b.accept(), a.register(np.ones(9)), b.register(np.zeros(9))]
        peer, other, source, target = kept
        word = b.register(np.zeros(1, np.int64))
        kept += [peer.write(source, target.remote), peer.fetch_add(word.remote, 1), word]
        kept[-2].wait()
        kept.append(other.recv(np.zeros(4), tag=1))
        assert device_descriptors() > before
    until(lambda: device_descriptors() <= before, "the device is let go of")
    assert (len(kept), peer.alive) == (8, False)  # and everything is still held

"""Signal handlers: they run during long waits, may close what is waited for, and may end a close."""

import gc
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, within
from support.keeper import keep
from support.link import until
from support.operations import WAITS
from support.signals import SOON, alarm, ctrl_c
from support.system import socket_inodes

BIG = 24 << 20  # bytes; more than the sockets between two processes can hold


@pytest.mark.parametrize("name", WAITS)
def test_a_signal_handler_closes_the_endpoint_that_is_waited_on(thread, device, name):
    """The wait ends with a typed error; what the interrupted call still uses goes with the object."""
    with thread(keep) as s:
        s.peer.notify(1, 1).wait()
        s.peer.write_many([], notify=(2, 1), require="host").wait()  # now all connections stand
        before = len(socket_inodes())
        ep = zh.Endpoint(device, timeout=30)
        peer = ep.connect(s.address)
        with alarm(ep.close), within(LOST_WITHIN), pytest.raises(zh.Error, match="closed"):
            WAITS[name](SimpleNamespace(ep=ep, peer=peer), None)
        assert ep.closed
        assert not peer.alive
        del ep, peer
        until(
            lambda: gc.collect() >= 0 and len(socket_inodes()) <= before, "its sockets are closed"
        )


def test_a_signal_handler_closes_another_endpoint(thread, open_endpoint):
    """The wait goes on, and nothing is held up by it."""
    with thread(keep) as s:
        other = open_endpoint()
        with alarm(other.close), within(2.0), pytest.raises(zh.TransferTimeout):
            s.ep.wait_notify(3, timeout=4 * SOON)
        assert other.closed


def test_ctrl_c_ends_the_wait_of_a_close_and_closes(process, device):
    """What was posted to a peer that stands still is given up; the endpoint is closed all the same."""
    with process(keep, connected=False) as s:
        before = len(socket_inodes())
        ep = zh.Endpoint(device, timeout=30)
        peer = ep.connect(s.address)
        s.link.send(("array", "empty", np.zeros(BIG, np.uint8)))
        far = s.link.recv()
        s.signal(signal.SIGSTOP)
        transfer = peer.write(ep.empty(BIG), far)
        with ctrl_c(), within(LOST_WITHIN), pytest.raises(KeyboardInterrupt):
            ep.close()
        assert ep.closed
        assert not peer.alive
        with pytest.raises(zh.PeerLost):
            transfer.wait(1)
        ep.close()  # again: nothing happens
        del ep, peer, transfer
        until(
            lambda: gc.collect() >= 0 and len(socket_inodes()) <= before, "its sockets are closed"
        )


def test_ctrl_c_ends_the_wait_of_a_peers_close(process):
    with process(keep) as s:
        far = s.keeper.array("empty", np.zeros(BIG, np.uint8)).remote
        s.signal(signal.SIGSTOP)
        transfer = s.peer.write(s.ep.empty(BIG), far)
        with ctrl_c(), within(3.0), pytest.raises(KeyboardInterrupt):
            s.peer.close()
        assert not transfer.done  # nobody has left yet, and closing again is possible
        with within(3.0):
            s.peer.close(timeout=0)
        assert not s.peer.alive
        with pytest.raises(zh.PeerLost):
            transfer.wait(1)

"""Guarantee 3, for every way in which a process ends: with transfers under way in both directions."""

import ctypes
import os
import signal

import numpy as np
import pytest
import zerohop as zh
from support.arrays import block
from support.attempt import LOST_WITHIN, Attempt
from support.keeper import keep
from support.operations import BIG

OLD, NEW = 1, 7  # bytes

WAYS = {
    "os._exit": lambda: os._exit(0),
    "exec": lambda: os.execv("/bin/sleep", ["sleep", "60"]),  # the process lives on as another
    "abort": os.abort,
    "segmentation fault": lambda: ctypes.string_at(0),
    "SIGTERM": lambda: signal.raise_signal(signal.SIGTERM),
}


def end_by(ep, peer, link, way):
    far = ep.empty(BIG)
    ep.share("far", far)
    source = ep.empty(BIG)
    np.asarray(source)[:] = NEW
    target = peer.lookup("here")
    link.meet("prepared")
    under_way = [peer.write(source, target) for _ in range(4)]
    link.send("begun")
    WAYS[way]()
    raise AssertionError(f"{way} has not ended the process with {len(under_way)} transfers")


def read(peer, far, sink):
    """Until the peer is lost: by p2p this process may go on copying alone for a while."""
    while True:
        try:
            peer.read(far, sink).wait(30.0)
        except zh.PeerLost:
            return


@pytest.mark.parametrize("way", WAYS)
def test_the_survivor_learns_of_it_and_goes_on(process, way):
    with process(end_by, way) as s:
        here = block(s.ep, "numpy", BIG)
        here.bytes[:] = OLD
        s.ep.share("here", here.memory)
        far = s.peer.lookup("far")
        sink = s.ep.empty(BIG)
        message = Attempt(s.peer.recv(sink[:100], tag=1).wait, 30.0)
        notification = Attempt(s.ep.wait_notify, 5, 30.0)
        s.link.meet("prepared")
        reads = [Attempt(read, s.peer, far, sink) for _ in range(4)]
        assert s.link.recv() == "begun"
        s.signal(signal.SIGCONT)  # from here on its end is no failure
        for waiting in (message, notification):
            error = waiting.failure(zh.PeerLost, timeout=LOST_WITHIN)
            assert len(str(error)) > 20
        for each in reads:
            each.value(LOST_WITHIN)
        assert not s.peer.alive
        here.check_guards()
        assert np.isin(here.bytes, [OLD, NEW]).all()
        with process(keep, endpoint=s.ep) as again:
            again.check()

"""The harness itself: what goes wrong in a partner reaches the test, and nothing waits for ever."""

import os
import threading

import pytest
from support.partner import PartnerFailed


def fail(ep, peer, link):
    raise ValueError("as planned")


def hang(ep, peer, link):
    link.send("hanging")
    threading.Event().wait(30)


def test_a_failing_partner_fails_the_test_with_its_traceback(remote):
    with pytest.raises(PartnerFailed, match="as planned"), remote(fail):
        pass


def test_a_hanging_partner_is_killed_and_its_stack_shown(process):
    session = process(hang, deadline=0.2)
    with pytest.raises(PartnerFailed, match="in hang"), session as s:
        s.link.recv()
    with pytest.raises(ProcessLookupError):
        os.kill(session.pid, 0)

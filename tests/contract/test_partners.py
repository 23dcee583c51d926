"""The harness itself: what goes wrong in a partner reaches the test, and nothing waits for ever."""

import os
import threading
import time

import pytest
from support.link import LinkClosed, LinkTimeout
from support.partner import PartnerFailed


def echo(ep, peer, link, first):
    link.send(first)
    while (value := link.recv()) != "end":
        link.send(value)


def fail(ep, peer, link):
    raise ValueError("as planned")


def leave(ep, peer, link):
    os._exit(7)


def hang(ep, peer, link):
    link.send("hanging")
    threading.Event().wait(30)


def test_a_failing_partner_fails_the_test_with_its_traceback(remote):
    with pytest.raises(PartnerFailed, match="as planned"), remote(fail):
        pass


def test_waiting_for_a_failed_partner_ends_at_once(remote, capsys):
    start = time.monotonic()
    with pytest.raises(LinkClosed), remote(fail) as s:
        s.link.recv()
    assert time.monotonic() - start < 5
    assert "as planned" in capsys.readouterr().err


def test_a_silent_link_times_out(remote):
    with remote(echo, 1) as s:
        s.link.recv()
        with pytest.raises(LinkTimeout):
            s.link.recv(timeout=0.05)
        s.link.send("end")


def test_a_partner_process_that_dies_is_reported_with_its_status(process):
    with pytest.raises(PartnerFailed, match="exit status 7"), process(leave):
        pass


def test_a_hanging_partner_is_killed_and_its_stack_shown(process):
    session = process(hang, deadline=0.2)
    with pytest.raises(PartnerFailed, match="in hang"), session as s:
        s.link.recv()
    with pytest.raises(ProcessLookupError):
        os.kill(session.pid, 0)

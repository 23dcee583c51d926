"""The harness itself: what goes wrong in a partner reaches the test, and nothing waits for ever."""

from __future__ import annotations

import os
import signal
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


def fail_later(ep, peer, link):
    link.meet("both are here")
    assert peer is None


def leave(ep, peer, link):
    os._exit(7)


def hang(ep, peer, link):
    link.send("hanging")
    threading.Event().wait(30)


def process_id(ep, peer, link):
    link.send(os.getpid())


def variable(ep, peer, link):
    link.send((os.getpid(), os.environ.get("ZEROHOP_INTEGRITY")))


def test_objects_and_barriers_cross_the_link(remote):
    with remote(echo, {"a": 1}) as s:
        assert s.link.recv() == {"a": 1}
        s.link.send([1, 2])
        assert s.link.recv() == [1, 2]
        s.link.send("end")


def test_the_partner_is_a_thread_or_another_process(remote):
    with remote(process_id) as s:
        assert (s.link.recv() == os.getpid()) == (remote.mode == "thread")


def test_a_failing_partner_fails_the_test_with_its_traceback(remote):
    with pytest.raises(PartnerFailed, match="as planned"), remote(fail):
        pass


def test_a_partner_that_fails_after_a_barrier_is_seen_too(remote):
    with pytest.raises(PartnerFailed, match="assert peer is None"), remote(fail_later) as s:
        s.link.meet("both are here")


def test_waiting_for_a_failed_partner_ends_at_once(remote, capsys):
    start = time.monotonic()
    with pytest.raises(LinkClosed), remote(fail) as s:
        s.link.recv()
    assert time.monotonic() - start < 5
    assert "as planned" in capsys.readouterr().err


def test_the_error_of_the_test_itself_is_kept(remote):
    with pytest.raises(KeyError, match="mine"), remote(echo, 1):
        raise KeyError("mine")


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


def test_a_killed_partner_is_no_failure_when_the_test_did_it(process):
    with process(hang) as s:
        s.link.recv()
        s.signal(signal.SIGKILL)


def test_a_partner_process_is_used_again(process):
    with process(process_id) as s:
        first = s.link.recv()
    pids = set()
    for _ in range(4):
        with process(process_id) as s:
            pids.add(s.link.recv())
    assert first in pids


def test_a_partner_process_has_the_environment_of_its_test_alone(process, monkeypatch):
    """Also one that was begun while another was set, used or not."""
    seen = {}
    for value in ("0", "1", None):
        with monkeypatch.context() as changed:
            if value is None:
                changed.delenv("ZEROHOP_INTEGRITY", raising=False)
            else:
                changed.setenv("ZEROHOP_INTEGRITY", value)
            for _ in range(3):
                with process(variable) as s:
                    pid, found = s.link.recv()
                assert found == value
                assert seen.setdefault(pid, value) == value


def test_a_partner_process_given_back_late_serves_its_environment_alone(process, monkeypatch):
    with process(variable) as early:
        early.link.recv()
        monkeypatch.setenv("ZEROHOP_INTEGRITY", "0")
        with process(variable) as s:
            assert s.link.recv()[1] == "0"
    with process(variable) as s:
        pid, found = s.link.recv()
    assert pid != early.pid
    assert found == "0"

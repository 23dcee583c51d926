"""Guarantee 3, first half: every wait is bounded, by its own timeout or by the endpoint's."""

import asyncio
import signal

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.keeper import keep
from support.operations import WAITS as BLOCKING
from support.signals import ctrl_c

SHORT = 0.15  # seconds
LATE = SHORT + 1.5  # seconds; what a busy machine may add to it


# None: waits for ever
WAITS = {**BLOCKING, "await": lambda s, t: asyncio.run(asyncio.wait_for(awaited(s), t))}


async def awaited(session):
    await session.peer.recv(session.ep.empty(8), tag=10)


@pytest.mark.parametrize("name", WAITS)
def test_each_wait_ends_at_its_timeout(remote, name):
    with remote(keep) as s, pytest.raises(TimeoutError), within(LATE, at_least=SHORT * 0.9):
        WAITS[name](s, SHORT)


@pytest.mark.parametrize("name", WAITS)
def test_each_wait_ends_at_the_default_timeout(thread, name):
    with (
        thread(keep, timeout=SHORT) as s,
        pytest.raises(zh.TransferTimeout),
        within(LATE, SHORT * 0.9),
    ):
        WAITS[name](s, None)


@pytest.mark.parametrize("name", BLOCKING)
def test_a_timeout_of_zero_only_looks(thread, name):
    with thread(keep) as s, pytest.raises(zh.TransferTimeout), within(1.0):
        WAITS[name](s, 0)


def late(ep, peer, link):
    link.recv(60)
    peer.send(np.ones(8), tag=5).wait()
    peer.recv(np.empty(100_000, np.uint8), tag=7).wait()


GOES_ON = (
    r"is not done yet; it goes on, and the Transfer stays valid: wait again, or close the peer"
)


def test_a_timeout_says_what_was_waited_for_and_that_may_be_waited_for_again(remote):
    with remote(late, name="the late one") as s:
        transfers = {
            r"recv of 800 bytes with tag 5 from": s.peer.recv(np.empty(100), tag=5),
            r"send of 100000 bytes with tag 7 to": s.peer.send(np.ones(100_000, np.uint8), tag=7),
        }
        for words, transfer in transfers.items():
            expected = rf"^{words} peer 'the late one' {GOES_ON} \(waited 0\.02 s\)$"
            with pytest.raises(zh.TransferTimeout, match=expected):
                transfer.wait(0.02)
        s.link.send("now")
        assert [transfer.wait() for transfer in transfers.values()] == [64, None]


def test_the_environment_gives_the_default_timeout(monkeypatch, device):
    monkeypatch.setenv("ZEROHOP_TIMEOUT", str(SHORT))
    ep = zh.Endpoint(device)
    with ep, pytest.raises(zh.TransferTimeout), within(LATE, at_least=SHORT * 0.9):
        ep.wait_notify(0)


@pytest.mark.parametrize("value", ["soon", "-1", "nan", ""])
def test_a_senseless_default_timeout_is_refused(monkeypatch, device, value):
    monkeypatch.setenv("ZEROHOP_TIMEOUT", value)
    if value == "":  # set but empty: as if it were not set
        zh.Endpoint(device).close()
    else:
        with pytest.raises(ValueError, match="ZEROHOP_TIMEOUT"):
            zh.Endpoint(device)


@pytest.mark.parametrize("bad", [-1, float("nan"), "soon"])
def test_senseless_timeouts_are_refused(thread, bad):
    with thread(keep) as s:
        with pytest.raises((ValueError, TypeError)), within(1.0):
            s.ep.wait_notify(1, timeout=bad)
        with pytest.raises((ValueError, TypeError)), within(1.0):
            s.peer.recv(s.ep.empty(8)).wait(bad)


def send_when_asked(ep, peer, link):
    memory, _ = array(ep, "numpy", np.arange(1000))
    link.meet("now")
    peer.send(memory, tag=4).wait()


def test_a_transfer_goes_on_after_a_timeout(remote):
    with remote(send_when_asked) as s:
        memory, view = array(s.ep, "numpy", np.zeros(1000, int))
        transfer = s.peer.recv(memory, tag=4)
        for _ in range(3):
            with pytest.raises(zh.TransferTimeout) as caught:
                transfer.wait(0.02)
            assert isinstance(caught.value, TimeoutError)
            assert not transfer.done
        s.link.meet("now")
        assert transfer.wait() == memory.nbytes
        assert transfer.done
        np.testing.assert_array_equal(view, np.arange(1000))
        assert transfer.wait(0) == memory.nbytes  # again: the same answer, at once


def test_connecting_to_a_stopped_process_ends_at_the_timeout(process, open_endpoint):
    ep = open_endpoint()
    with process(keep, connected=False) as s:
        s.signal(signal.SIGSTOP)
        with pytest.raises((TimeoutError, zh.PeerLost)), within(0.5 + 2, at_least=0.4):
            ep.connect(s.address, timeout=0.5)
        s.signal(signal.SIGKILL)
    with process(keep, endpoint=ep) as s:  # the endpoint is as good as new
        s.check()


def test_a_stopped_peer_does_not_hold_up_another_connection(process, open_endpoint):
    ep = open_endpoint()
    with process(keep, connected=False) as stuck:
        stuck.signal(signal.SIGSTOP)
        waiting = Attempt(lambda: ep.connect(stuck.address, timeout=20))  # longer than all below
        with process(keep, endpoint=ep) as s:
            with within(3):
                memory, view = array(ep, "numpy", np.ones(10))
                target = s.keeper.array("numpy", np.zeros(10))
                s.peer.write(memory, target.remote).wait()
                assert target.show().all()
                assert view.all()
            assert waiting.pending
        stuck.signal(signal.SIGKILL)
        waiting.failure(zh.Error)


def test_ctrl_c_ends_a_wait(thread):
    """A wait in the main thread gives signal handlers their turn."""
    with thread(keep) as s, ctrl_c(), pytest.raises(KeyboardInterrupt), within(5):
        s.ep.wait_notify(3, timeout=20)

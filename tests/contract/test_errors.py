"""Guarantee 8: errors are typed, keep the numeric code, and say cause and remedy in a sentence."""

import errno
import pickle
import re

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import within
from support.forge import forge, with_other_secret
from support.keeper import keep

KINDS = [
    "VerbsError",
    "CudaError",
    "PeerLost",
    "TransferTimeout",
    "RegistrationError",
    "RouteUnavailable",
    "ProtocolError",
    "AuthenticationError",
]


@pytest.mark.parametrize("name", KINDS)
def test_each_error_is_a_zerohop_error(name):
    kind = getattr(zh, name)
    assert issubclass(kind, zh.Error)
    assert issubclass(zh.Error, RuntimeError)
    assert kind.__name__ == name
    assert issubclass(kind, TimeoutError) == (name == "TransferTimeout")
    assert kind.__doc__
    assert getattr(zh.errors, name) is kind


@pytest.mark.parametrize("name", ["Error", *KINDS])
def test_errors_can_be_raised_and_sent_by_python_too(name):
    kind = getattr(zh, name)
    error = kind("what happened")
    assert (str(error), error.code, error.effect) == ("what happened", 0, "nothing")
    error.code, error.effect = 5, "some"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.code, again.effect) == ("what happened", 5, "some")


def provoke(call, name=""):
    try:
        call()
    except zh.Error as error:
        return error
    return pytest.fail(f"nothing was raised by: {name or call}")


def closed_address(device):
    with zh.Endpoint(device) as gone:
        return gone.address


def provocations(s, other, device):
    """name -> (the error type it must have, how to provoke it)"""
    memory, _ = array(s.ep, "numpy", np.zeros(8))
    far = s.keeper.array("numpy", np.zeros(8)).remote
    closed, _ = array(s.ep, "numpy", np.zeros(8))
    closed.close()
    bad_key = forge(far, rkey=1)
    return {
        "remote access": (zh.VerbsError, lambda: s.peer.write(memory, bad_key).wait()),
        "no device": (zh.VerbsError, lambda: zh.Endpoint("nosuch0")),
        "timeout": (zh.TransferTimeout, lambda: s.ep.wait_notify(3, timeout=0.01)),
        "late recv": (zh.TransferTimeout, lambda: s.peer.recv(memory, tag=88).wait(0.01)),
        "late lookup": (zh.TransferTimeout, lambda: s.peer.lookup("nothing", timeout=0.01)),
        "closed memory": (zh.RegistrationError, lambda: s.peer.write(closed, far)),
        "no such route": (zh.RouteUnavailable, lambda: s.peer.write(memory, far, require="staged")),
        "no address": (zh.ProtocolError, lambda: s.ep.connect(b"no address")),
        "no value": (zh.ProtocolError, lambda: zh.RemoteMemory.from_bytes(b"no value")),
        "wrong secret": (
            zh.AuthenticationError, lambda: other.connect(with_other_secret(s.address), 4),
        ),
        "nobody there": (zh.PeerLost, lambda: s.ep.connect(closed_address(device), timeout=2)),
    }  # fmt: skip


def test_what_errors_say(thread, open_endpoint, device):
    other = open_endpoint()
    with thread(keep) as s:
        for name, (kind, call) in provocations(s, other, device).items():
            error = provoke(call, name)
            text = str(error)
            assert type(error) is kind, (name, type(error), text)
            assert len(text) > 30, (name, text)
            assert "\n" not in text, (name, text)
            assert not text.startswith(" "), (name, text)
            assert isinstance(error.code, int)
            assert error.effect in ("nothing", "some", "all")


def test_only_a_transfer_goes_on_after_a_timeout(thread):
    """What a wait that timed out says may have been written: what the transfer still may."""
    with thread(keep) as s:
        memory = s.ep.empty(100_000)
        late = provoke(lambda: s.peer.recv(memory, tag=88).wait(0.01))
        unsent = provoke(lambda: s.peer.send(memory, tag=88).wait(0.01))
        assert (late.effect, unsent.effect) == ("all", "all")
        assert "it goes on" in str(late)
        for call in (
            lambda: s.ep.wait_notify(3, timeout=0.01),
            lambda: s.ep.accept(timeout=0.01),
            lambda: s.peer.lookup("nothing", timeout=0.01),
        ):
            error = provoke(call)
            assert (type(error), error.effect) == (zh.TransferTimeout, "nothing")
        with pytest.warns(RuntimeWarning, match="dropped 1 send"):
            s.ep.close()


def test_a_stale_address_says_so(open_endpoint, device):
    """The commonest mistake: the other process has ended, or was started anew."""
    with within(5):
        error = provoke(lambda: open_endpoint().connect(closed_address(device), timeout=4))
    assert (type(error), error.code) == (zh.PeerLost, errno.ECONNREFUSED)
    assert re.match(
        "cannot connect to endpoint '.*' at .*:[0-9]+: nothing listens there", str(error)
    )
    assert "its process has ended, or the address is of an earlier run" in str(error)


def test_the_error_of_a_transfer_is_raised_at_every_wait(thread):
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", np.zeros(8))
        far = s.keeper.array("numpy", np.zeros(8)).remote
        transfer = s.peer.write(memory, forge(far, rkey=1))
        errors = [provoke(transfer.wait) for _ in range(3)]
        assert transfer.done
        assert len({str(error) for error in errors}) == 1
        assert len({id(error) for error in errors}) == 3  # tracebacks do not pile up on one

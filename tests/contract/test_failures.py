"""One table of what can go wrong and the exception that says so: the same on every device.

The wire that is cut has its place in tests/vm, where there is one.
"""

import signal

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, staged_by_endpoints
from support.attempt import Attempt
from support.forge import Forged, forge
from support.keeper import keep
from support.link import until
from support.patience import LOST_WITHIN
from support.refusals import IWARP, is_refusal

NBYTES = 1024  # of one packet: refused whole


class Stage:
    """A keeper's memory, ours to be moved there and back, and a message that nobody awaits yet."""

    def __init__(self, session):
        self.s, self.ep, self.peer = session, session.ep, session.peer
        self.keeper = session.keeper
        self.kept = self.keeper.array("numpy", np.zeros(NBYTES // 8, np.int64))
        self.far = self.kept.remote
        self.counter = self.keeper.array("counter", np.zeros(1, np.int64)).remote
        self.near, _ = array(session.ep, "numpy", np.ones(NBYTES // 8, np.int64))
        self.spare, _ = array(session.ep, "numpy", np.ones(NBYTES // 8 + 1, np.int64))

    def longer(self):
        """One element more than was registered."""
        fields = Forged.of(self.far)
        return forge(self.far, shape=(NBYTES // 8 + 1,), end=fields.end + 8)

    def revoked(self):
        """From now on."""
        self.kept.revoke()
        return self.far


REFUSED = {
    "write, another key": lambda at: at.peer.write(at.near, forge(at.far, rkey=1)),
    "write_many, another key": lambda at: at.peer.write_many([(at.near, forge(at.far, rkey=1))]),
    "write and notify, another key": lambda at: at.peer.write(at.near, forge(at.far, rkey=1), notify=(1, 1)),
    "read, another key": lambda at: at.peer.read(forge(at.far, rkey=1), at.near),
    "fetch_add, another key": lambda at: at.peer.fetch_add(forge(at.counter, rkey=1)[0], 1),
    "compare_swap, another key": lambda at: at.peer.compare_swap(forge(at.counter, rkey=1)[0], 0, 1),
    "write, out of bounds": lambda at: at.peer.write(at.spare, at.longer()),
    "read, out of bounds": lambda at: at.peer.read(at.longer(), at.spare),
    "write, revoked": lambda at: at.peer.write(at.near, at.revoked()),
    "read, revoked": lambda at: at.peer.read(at.revoked(), at.near),
}  # fmt: skip


ATOMICS = ("fetch_add", "compare_swap")


def effect_of(name):
    """A write is one chain with its notification: any of it may be what was refused. Staged, it is alone."""
    return "some" if "notify" in name and not staged_by_endpoints() else "nothing"


def test_what_the_peer_refuses(process):
    with process(keep) as s:
        at = Stage(s)
        for name, provoke in REFUSED.items():
            if IWARP and name.startswith(
                ATOMICS
            ):  # they are refused here, and inside/siw0 has that
                continue
            with pytest.raises(zh.VerbsError) as caught:
                provoke(at).wait()
            error = caught.value
            assert is_refusal(error, effect_of(name)), (name, error)
            assert s.peer.alive
            s.peer.notify(2, 2).wait()  # the broken queue pair has been replaced


LOST = {
    "write": lambda at: at.peer.write(at.near, at.far),
    "read": lambda at: at.peer.read(at.far, at.near),
    "fetch_add": lambda at: at.peer.fetch_add(at.counter[0], 1),
    "send": lambda at: at.peer.send(at.near),
    "recv": lambda at: at.peer.recv(at.near),
    "notify": lambda at: at.peer.notify(1, 1),
    "lookup": lambda at: at.peer["nothing"],
    "route": lambda at: at.peer.route(at.near, at.far),
}


@pytest.mark.parametrize("end", ["killed", "silent", "closed"])
def test_what_a_lost_peer_gives(process, end):
    with process(keep) as s:
        at = Stage(s)
        pending = Attempt(s.peer.recv(at.near, tag=7).wait)
        assert s.peer.why_lost is None
        if end == "closed":
            at.keeper.end()
            s.returned()
            s.release()
        else:
            s.signal(signal.SIGKILL if end == "killed" else signal.SIGSTOP)
        error = pending.failure(zh.PeerLost, timeout=LOST_WITHIN)
        assert (type(error), error.code, error.effect) == (zh.PeerLost, 0, "nothing")
        until(lambda: not s.peer.alive, "the lost peer is not alive", LOST_WITHIN)
        assert s.peer.why_lost in str(error)
        for name, call in LOST.items():
            with pytest.raises(zh.Error) as caught:
                call(at).wait()
            seen = (type(caught.value), caught.value.code, caught.value.effect)
            assert seen == (zh.PeerLost, 0, "nothing"), name
        [rail] = s.peer.stats()["rails"]
        assert not rail["serves"]
        assert "is lost" in rail["trouble"]

"""Guarantee 6: nobody touches memory without its RemoteMemory, within its bounds and access.

Each attempt must fail at the one who tries, change not one byte at the owner, and leave the Peer in
working order.
"""

import random

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, block, pattern
from support.attempt import within
from support.forge import Forged, forge
from support.keeper import keep
from support.refusals import IWARP

REFUSED = (zh.Error, ValueError, TypeError, IndexError)
NBYTES = 4096


class Victim:
    """Guarded memory at the partner, and ours to attack it with."""

    def __init__(self, session, kind="numpy"):
        self.s = session
        self.keeper = session.keeper
        self.target = self.keeper.block(kind, NBYTES, 7)
        self.before = self.target.show()
        self.memory, self.view = array(session.ep, "numpy", pattern(NBYTES))

    def check_refused(self, call, errors=REFUSED):
        """The call fails soon, nothing changed, and a legal write works at once."""
        with pytest.raises(errors) as caught, within(5):
            call().wait()
        assert str(caught.value)
        np.testing.assert_array_equal(self.target.show(), self.before)
        self.s.peer.write(self.memory, self.target.remote).wait()
        np.testing.assert_array_equal(self.target.show(), self.view)
        self.view[:] = np.roll(self.view, 1)
        self.before = self.target.show()
        return caught.value


FORGERIES = {
    "another key": {"rkey": 0x12345678},
    "key zero": {"rkey": 0},
    "just before": {"moved": -1},
    "just behind": {"moved": 1},
    "one page before": {"moved": -4096},
    "far behind": {"moved": 1 << 30},
    "address zero": {"address": 0, "begin": 0, "end": NBYTES},
    "end of the address space": {
        "address": 2**64 - NBYTES - 1, "begin": 2**64 - NBYTES - 1, "end": 2**64 - 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("verb", ["write", "read", "write_many"])
def test_forged_remote_memory_is_refused_at_the_owner(remote, verb):
    with remote(keep) as s:
        victim = Victim(s)
        calls = {
            "write": lambda bad: s.peer.write(victim.memory, bad),
            "read": lambda bad: s.peer.read(bad, victim.memory),
            "write_many": lambda bad: s.peer.write_many([(victim.memory, bad)]),
        }
        for name, fields in FORGERIES.items():
            bad = forge(victim.target.remote, **fields)
            error = victim.check_refused(lambda bad=bad: calls[verb](bad))
            if isinstance(error, zh.VerbsError):
                assert error.code != 0, name
                assert IWARP or error.effect == "nothing", (
                    name
                )  # there no status says what was refused


def test_more_bytes_than_registered_are_refused(remote, kind):
    with remote(keep) as s:
        victim = Victim(s, kind)
        fields = Forged.of(victim.target.remote)
        nbytes = fields.end - fields.address + 1  # one more than its registration has
        longer = forge(victim.target.remote, shape=(nbytes,), end=fields.end + 1)
        source = block(s.ep, "numpy", nbytes)
        victim.check_refused(lambda: s.peer.write(source.memory, longer))
        victim.check_refused(lambda: s.peer.read(longer, source.memory))


def test_a_flipped_bit_anywhere_never_reaches_other_bytes(process):
    """Every byte of a RemoteMemory, one changed bit each: refused, or still inside the array."""
    with process(keep) as s:
        victim = Victim(s)
        raw = victim.target.remote.to_bytes()
        rng = random.Random(0)
        for place in range(len(raw)):
            changed = bytearray(raw)
            changed[place] ^= 1 << rng.randrange(8)
            try:
                bad = zh.RemoteMemory.from_bytes(bytes(changed))
                with within(5):
                    s.peer.write(victim.memory, bad).wait()
            except REFUSED:
                pass
            victim.target.show()  # looks at the guards
        assert s.peer.alive
        s.peer.write(victim.memory, victim.target.remote).wait()
        np.testing.assert_array_equal(victim.target.show(), victim.view)


def test_access_cannot_be_widened_by_the_holder(remote):
    with remote(serve_read_only) as s:
        far = s.link.recv()
        assert Forged.of(far).access == 1
        wider = forge(far, access=3)
        memory, view = array(s.ep, "numpy", np.ones(100, np.int64))
        with pytest.raises(ValueError, match="read-only"):
            s.peer.write(memory, far)
        with pytest.raises(zh.Error), within(5):
            s.peer.write(memory, wider).wait()
        with pytest.raises(zh.Error), within(5):
            s.peer.fetch_add(wider[0], 1).wait()
        s.peer.read(far, memory).wait()
        assert view.tolist() == list(range(100))
        s.link.meet("tried")


def serve_read_only(ep, peer, link):
    values = np.arange(100)
    memory = ep.register(values, writable=False)
    link.send(memory.remote)
    link.meet("tried")
    assert values.tolist() == list(range(100))


def test_memory_of_another_endpoint_is_refused_before_anything_is_sent(remote):
    with remote(keep) as s, remote(keep, endpoint=s.ep) as other:
        victim = Victim(s)
        foreign = other.keeper.array("numpy", np.zeros(NBYTES, np.uint8))
        for bad in (foreign.remote, forge(victim.target.remote, endpoint=bytes(16))):
            error = victim.check_refused(lambda bad=bad: s.peer.write(victim.memory, bad))
            assert getattr(error, "effect", "nothing") == "nothing"
            victim.check_refused(lambda bad=bad: s.peer.read(bad, victim.memory))
        assert not foreign.show().any()
        relabelled = forge(foreign.remote, endpoint=bytes.fromhex(s.peer.id))
        victim.check_refused(lambda: s.peer.write(victim.memory, relabelled))
        assert not foreign.show().any()


def test_revoked_memory_is_refused_and_untouched(remote, kind):
    with remote(keep) as s:
        victim = Victim(s)
        revoked = victim.keeper.block(kind, NBYTES)
        s.peer.write(victim.memory, revoked.remote).wait()
        content = revoked.show()
        revoked.revoke()
        victim.view[:] = np.roll(victim.view, 3)
        for call in (
            lambda: s.peer.write(victim.memory, revoked.remote),
            lambda: s.peer.write(victim.memory, revoked.remote, notify=(9, 9)),
            lambda: s.peer.read(revoked.remote, victim.memory),
            lambda: s.peer.write_many([(victim.memory, revoked.remote)] * 3),
        ):
            victim.check_refused(call)
        np.testing.assert_array_equal(revoked.show(), content)


def refuse_notification(ep, peer, link):
    memory = ep.empty(8)
    link.send(memory.remote)
    memory.close()
    link.meet("closed")
    link.meet("tried")
    assert ep.peek_notify(9) == 0, "the notification of a refused write was seen"


def test_a_refused_write_does_not_notify(remote):
    with remote(refuse_notification) as s:
        far = s.link.recv()
        s.link.meet("closed")
        with pytest.raises(zh.Error):
            s.peer.write(s.ep.empty(8), far, notify=(9, 9)).wait()
        s.peer.notify(8, 8).wait()  # comes after it
        s.link.meet("tried")


@pytest.mark.parametrize("verb", ["write", "read"])
def test_slices_cannot_leave_the_array(thread, verb):
    with thread(keep) as s:
        victim = Victim(s)
        far = victim.target.remote[100:200]
        assert far[-1000:1000].shape == (100,)  # as NumPy clips slices
        for index in (100, -101, 1 << 62, -(1 << 62)):
            with pytest.raises(IndexError):
                far[index]
            with pytest.raises(IndexError):
                victim.memory[100:200][index]
        for index in ("a", 1.5, [1, 2], np.array([1]), slice("a", None), (0, 0), slice(0, 9, 0)):
            with pytest.raises((IndexError, TypeError, ValueError)):
                far[index]
            with pytest.raises((IndexError, TypeError, ValueError)):
                victim.memory[index]


def test_operations_behind_a_refused_one_end_and_say_how(remote):
    """The queue pair breaks in the middle of many: each transfer ends, none lies."""
    with remote(keep) as s:
        victim = Victim(s)
        bad = forge(victim.target.remote, rkey=0x12345678)
        others = victim.keeper.array("numpy", np.zeros((40, 100), np.uint8))
        memory, view = array(s.ep, "numpy", np.ones((40, 100), np.uint8))
        good = [s.peer.write(memory[i], others.remote[i]) for i in range(20)]
        refused = s.peer.write(victim.memory, bad)
        later = [s.peer.write(memory[i], others.remote[i]) for i in range(20, 40)]
        for transfer in good:
            transfer.wait()
        with pytest.raises(zh.VerbsError):
            refused.wait()
        placed = [True] * 20 + [ended_well(transfer) for transfer in later]
        rows = others.show()
        assert all(rows[i].all() for i in range(40) if placed[i])
        victim.check_refused(lambda: s.peer.write(victim.memory, bad))
        assert view.all()


def ended_well(transfer):
    try:
        transfer.wait()
    except zh.Error as error:
        if error.effect not in ("nothing", "some", "all"):
            raise
        return False
    return True


def test_a_peer_survives_many_refusals(process):
    with process(keep) as s:
        victim = Victim(s)
        for number in range(40):
            bad = forge(victim.target.remote, rkey=number)
            with pytest.raises(zh.Error), within(5):
                s.peer.write(victim.memory, bad).wait()
        victim.check_refused(lambda: s.peer.write(victim.memory, bad))

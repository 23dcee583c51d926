"""Memory published by name: peer["name"], lookup that waits, replacing and withdrawing."""

import gc

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, block
from support.attempt import Attempt, within
from support.keeper import keep


def test_a_shared_name_gives_the_memory(remote, kind):
    with remote(keep) as s:
        with pytest.raises(KeyError, match="kv"), within(2):
            s.peer["kv"]
        assert "kv" not in s.peer
        target = s.keeper.block(kind, 1000)
        target.share("kv")
        assert "kv" in s.peer
        assert s.peer["kv"] == s.peer.lookup("kv") == target.remote
        source = block(s.ep, kind, 1000)
        s.peer.write(source.memory, s.peer["kv"]).wait()
        target.show()
        with pytest.raises(TypeError, match="a name must be a str, not int"):
            _ = 3 in s.peer
        with pytest.raises(TypeError, match=r"does not list what it shares: peer\[name\]"):
            list(s.peer)


def test_lookup_waits_until_it_is_published(remote):
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.arange(10))
        looking = [Attempt(s.peer.lookup, "later") for _ in range(5)]
        other = Attempt(s.peer.lookup, "never", 0.3)
        with pytest.raises(KeyError):
            s.peer["later"]
        target.share("later")
        assert all(attempt.value(5) == target.remote for attempt in looking)
        other.failure(zh.TransferTimeout)


def test_a_name_can_be_withdrawn_and_replaced(remote):
    with remote(keep) as s:
        first, second = s.keeper.array("numpy", np.zeros(3)), s.keeper.array("numpy", np.zeros(4))
        first.share("x")
        assert s.peer["x"].shape == (3,)
        second.share("x")
        assert s.peer["x"].shape == (4,)
        s.keeper.unshare("x")
        with pytest.raises(KeyError):
            s.peer["x"]


NAMES = ["a", "layer.0.weight", "with space and / and \n", "Größe 數組 🙂", "x" * 1000]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_any_text(remote, name):
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.zeros(3))
        target.share(name)
        assert s.peer[name] == target.remote


@pytest.mark.parametrize("name", [None, 5, b"bytes", "x" * 100_000, "\ud800"])
def test_other_names_are_refused(thread, name):
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", np.zeros(3))
        with pytest.raises((TypeError, ValueError, zh.ProtocolError)):
            s.ep.share(name, memory)
        with pytest.raises((TypeError, ValueError, KeyError, zh.ProtocolError)), within(2):
            s.peer[name]


def share_and_forget(ep, peer, link):
    ep.share("kept", ep.register(np.arange(1000)))
    ep.share("part", ep.register(np.arange(1000))[100:200:2])
    gc.collect()
    link.meet("shared")
    link.meet("read")


def test_sharing_keeps_the_memory(remote):
    with remote(share_and_forget) as s:
        s.link.meet("shared")
        memory, view = array(s.ep, "numpy", np.zeros(1000, int))
        s.peer.read(s.peer["kept"], memory).wait()
        assert view.tolist() == list(range(1000))
        s.peer.read(s.peer["part"], memory[:50]).wait()
        assert view[:50].tolist() == list(range(100, 200, 2))
        s.link.meet("read")


def share_many(ep, peer, link, count):
    memory = ep.empty(count, "int32")
    np.asarray(memory)[:] = np.arange(count)
    for number in range(count):
        ep.share(f"layer.{number}", memory[number])
    link.meet("shared")
    sink, view = array(ep, "numpy", np.zeros((), np.int32))
    for number in range(count):
        peer.read(peer.lookup(f"back.{number}"), sink).wait()
        assert view == -number


def test_thousands_of_names_from_both_sides(remote):
    count = 1000
    with remote(share_many, count) as s:
        memory, _ = array(s.ep, "numpy", -np.arange(count, dtype=np.int32))
        for number in range(count):
            s.ep.share(f"back.{number}", memory[number])
        s.link.meet("shared")
        sink, view = array(s.ep, "numpy", np.zeros(count, np.int32))
        pairs = [(s.peer[f"layer.{number}"], sink[number]) for number in range(count)]
        s.peer.read_many(pairs).wait()
        assert view.tolist() == list(range(count))

"""Guarantee 4: memory in use stays alive and registered, whatever Python drops; and no longer."""

import gc
import sys
import weakref

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, block, give_back, on_gpu, pattern
from support.attempt import within
from support.forge import Forged
from support.keeper import keep
from support.link import START_TIMEOUT, until
from support.program import run_python

BIG = 16 << 20  # bytes


def test_a_registration_keeps_its_array_alive_and_lets_it_go(open_endpoint):
    ep = open_endpoint()
    values = np.arange(1000)
    alive = weakref.ref(values)
    memory = ep.register(values)
    part = memory[10:20]
    del values, memory
    gc.collect()
    assert np.asarray(part).tolist() == list(range(10, 20))
    assert alive() is not None
    del part
    until(lambda: gc.collect() >= 0 and alive() is None, "the array is freed")


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
def test_everything_may_be_dropped_right_after_posting(remote, kept):
    """Kept: the Transfer alone."""
    with remote(keep) as s:
        target = s.keeper.array("empty", np.zeros(BIG, np.uint8))
        values = pattern(BIG)
        expected, alive = values.copy(), weakref.ref(values)
        transfer = s.peer.write(s.ep.register(values), target.remote)
        if not kept:
            del transfer
        del values
        gc.collect()
        filler = [np.full(BIG, 99, np.uint8) for _ in range(4)]  # takes freed pages, if any
        if kept:
            transfer.wait()
        else:
            back = block(s.ep, "empty", BIG)
            s.peer.read(target.remote, back.memory).wait()  # posted later, so done later
            np.testing.assert_array_equal(back.bytes, expected)
        np.testing.assert_array_equal(target.show(), expected)
        assert len(filler) == 4
        until(lambda: gc.collect() >= 0 and alive() is None, "the array is freed afterwards")


def test_transfers_come_and_go(remote):
    """Each is an object of its own, may be referred to weakly, and dropped while an exception is on its way."""
    with remote(keep) as s:
        target = s.keeper.array("empty", np.zeros(8, np.uint8))
        source = s.ep.register(np.arange(8, dtype=np.uint8))
        s.peer.write(source, target.remote).wait()
        types = sys.getrefcount(zh.Transfer)
        kept = [s.peer.write(source, target.remote) for _ in range(100)]
        assert len(set(map(id, kept))) == len(set(kept)) == 100
        assert 100 <= sys.getrefcount(zh.Transfer) - types <= 101  # pytest may hold one
        alive = [weakref.ref(transfer) for transfer in kept[:50]]
        assert all(one() is transfer for one, transfer in zip(alive, kept, strict=False))
        for transfer in kept:
            assert transfer.wait() is transfer.wait(1) is transfer.wait(timeout=1.0) is None
        del transfer
        with pytest.raises(ZeroDivisionError):
            (kept.pop(0), 1 / 0)  # a temporary, which goes while the error is raised
        assert alive[0]() is None
        kept.clear()
        gc.collect()
        assert [one() for one in alive] == [None] * 50
        assert sys.getrefcount(zh.Transfer) <= types + 1


@pytest.mark.parametrize("verb", ["write", "read"])
def test_closing_memory_waits_for_the_transfers_that_use_it(remote, verb):
    with remote(keep) as s:
        values = pattern(BIG)
        target = s.keeper.array("empty", values if verb == "read" else np.zeros_like(values))
        memory, view = array(s.ep, "numpy", values if verb == "write" else np.zeros_like(values))
        if verb == "write":
            transfer = s.peer.write(memory, target.remote)
        else:
            transfer = s.peer.read(target.remote, memory)
        memory.close()
        assert memory.closed
        transfer.wait()
        np.testing.assert_array_equal(target.show() if verb == "write" else view, values)


def test_owners_are_released_as_often_as_they_are_taken(remote):
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.zeros(100))
        values = np.ones(100)
        before = sys.getrefcount(values)
        for _ in range(200):
            s.peer.write(s.ep.register(values), target.remote).wait()
        until(lambda: gc.collect() >= 0 and sys.getrefcount(values) <= before, "references dropped")


def test_a_failed_transfer_releases_its_owner(process):
    import signal

    with process(keep) as s:
        target = s.keeper.array("empty", np.zeros(BIG, np.uint8))
        values = np.ones(BIG, np.uint8)
        alive = weakref.ref(values)
        s.signal(signal.SIGSTOP)
        transfer = s.peer.write(s.ep.register(values), target.remote)
        s.signal(signal.SIGKILL)
        del values
        with pytest.raises(zh.PeerLost):
            transfer.wait()
        del transfer
        until(lambda: gc.collect() >= 0 and alive() is None, "the array is freed")


def test_a_registered_bytearray_cannot_be_resized(open_endpoint):
    ep = open_endpoint()
    raw = bytearray(100)
    memory = ep.register(raw)
    with pytest.raises(BufferError):
        raw.extend(b"more")
    memory.close()
    del memory
    gc.collect()
    raw.extend(b"more")


def test_made_memory_outlives_its_endpoint_in_every_view(device):
    ep = zh.Endpoint(device)
    memory = ep.empty((10, 10), "int32")
    views = [np.asarray(memory), np.from_dlpack(memory), np.asarray(memory)[3:5]]
    views[0][...] = 7
    address = memory.address
    values = np.ones(1000)
    others = [ep.register(values), ep.empty(1000), ep.register(values)[::2]]
    ep.close()
    del ep, memory
    gc.collect()
    others.clear()
    gc.collect()
    assert values.all()
    assert views[0].ctypes.data == views[1].ctypes.data == address
    assert all((view == 7).all() for view in views)
    views[1][...] = 8
    assert (views[0] == 8).all()
    del views[0], views[0]
    gc.collect()
    assert (views[0] == 8).all()


def test_memory_of_a_closed_registration_is_refused_by_name(remote):
    with remote(keep) as s:
        target = s.keeper.array("numpy", np.zeros(10))
        memory, _ = array(s.ep, "numpy", np.ones(10))
        part = memory[2:4]
        memory.close()
        memory.close()  # again: nothing happens
        assert part.closed
        for use in (
            lambda: s.peer.write(memory, target.remote),
            lambda: s.peer.write(part, target.remote[2:4]),
            lambda: s.peer.read(target.remote, memory),
            lambda: s.peer.send(memory),
            lambda: s.peer.recv(memory),
            lambda: s.ep.share("gone", memory),
            lambda: memory.remote,
        ):
            with pytest.raises((zh.RegistrationError, ValueError), match="closed"):
                use()
        assert not target.show().any()


def test_a_register_call_with_one_owner_shares_its_registration(open_endpoint):
    """Ten thousand views of one array: one registration, and closing one keeps the others."""
    ep = open_endpoint()
    values = np.arange(10_000.0)
    whole = ep.register(values)
    with within(1.0):
        views = [ep.register(values[i : i + 1]) for i in range(10_000)]
    views.append(whole)
    keys = {Forged.of(view.remote).rkey for view in views[::97]}
    assert len(keys) == 1
    views[0].close()
    assert not views[1].closed
    assert views[1].remote.shape == (1,)


ANEW = 12 << 20  # bytes: freed by itself, by PyTorch and by libc


def make_anew(ep, peer, link, kind, rounds):
    for value in range(rounds):
        memory, view = array(ep, kind, np.full(ANEW, value, np.uint8))
        link.send((memory.address, memory.remote))
        link.meet("moved")
        assert (view == 100 + value).all()
        memory.close()
        del memory, view
        give_back()
        link.meet("freed")


def test_memory_made_anew_where_freed_memory_was(remote, kind):
    """Neither side takes the new for the old, nor the old for the new."""
    rounds, places, old = 3, set(), None
    with remote(make_anew, kind, rounds) as s:
        for value in range(rounds):
            place, far = s.link.recv(START_TIMEOUT)
            places.add(place)
            memory, view = array(s.ep, kind, np.full(ANEW, 50, np.uint8))
            s.peer.read(far, memory).wait()
            assert (view == value).all()
            view[:] = 100 + value
            s.peer.write(memory, far).wait()
            if old is not None:
                for wrong in (s.peer.write, lambda near, gone: s.peer.read(gone, near)):
                    with pytest.raises(zh.Error):
                        wrong(memory, old).wait()
            s.link.meet("moved")
            s.link.meet("freed")
            old = far
            if value % 2:  # else the registration stays as long as the cache has room
                memory.close()
            del memory, view
            give_back()
    if on_gpu() and kind == "cuda":
        assert len(places) < rounds, "no address came again: nothing was tested"


@pytest.mark.parametrize("cache", [True, False])
def test_registering_and_dropping_leaves_no_memory_behind(open_endpoint, cache):
    from support.system import resident_nbytes

    ep = open_endpoint()

    def churn(count):
        for _ in range(count):
            ep.register(np.ones(1 << 18, np.uint8), cache=cache)

    churn(50)
    before = resident_nbytes()
    churn(500)  # 125 MB, were they kept
    assert resident_nbytes() - before < 30 << 20


EXIT = """
import sys, numpy as np, zerohop as zh
a, b = zh.Endpoint({device!r}), zh.Endpoint({device!r})
peer = a.connect(b.address)
far = b.empty(1 << 24)
near = a.register(np.zeros(1 << 24, np.uint8))
transfers = [peer.write(near, far.remote) for _ in range(20)]
waiting = peer.recv(near)
print("last line")
"""


def test_the_interpreter_exits_in_good_order_with_everything_open(device):
    """Nothing hangs and nothing aborts when a script simply ends."""
    script = EXIT.format(device=device)
    done = run_python("-c", script, seconds=20)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "last line\n"
    assert "terminate" not in done.stderr
    assert "Traceback" not in done.stderr


LEAVES_AT_ONCE = """
import numpy as np, zerohop as zh
ep = zh.Endpoint({device!r})
peer = ep.connect(bytes.fromhex({address!r}))
peer.write(np.full({nbytes}, 7, np.uint8), peer["inbox"], notify=(3, 9))
"""


def test_what_is_on_its_way_arrives_though_the_script_ends(open_endpoint, device):
    nbytes = 16 << 20
    ep = open_endpoint()
    inbox = ep.empty(nbytes)
    ep.share("inbox", inbox)
    script = LEAVES_AT_ONCE.format(device=device, address=ep.address.hex(), nbytes=nbytes)
    ended = run_python("-c", script)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ep.wait_notify(3) == 9
    assert bool((np.asarray(inbox) == 7).all())


KEEPS_A_PEER = """
import os
import zerohop as zh
def sockets():
    links = (f"/proc/self/fd/{{each}}" for each in os.listdir("/proc/self/fd"))
    return sum("socket" in os.readlink(link) for link in links if os.path.islink(link))
before = sockets()
with zh.Endpoint({device!r}) as ep, zh.Endpoint({device!r}) as other:
    peer = ep.connect(other.address)
    assert sockets() > before
assert sockets() == before
"""


def test_a_kept_peer_keeps_no_socket_open(device):
    """Of its closed Endpoint, by which processes of the host could still connect."""
    ended = run_python("-c", KEEPS_A_PEER.format(device=device))
    assert (ended.returncode, ended.stderr) == (0, "")

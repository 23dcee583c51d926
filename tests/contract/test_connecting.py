"""connect and accept: one Peer for each pair of endpoints, whoever began, and many of them."""

import threading

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.keeper import keep
from support.link import until
from support.system import socket_inodes


def answer_pings(ep, peer, link):
    sink = np.zeros(3)
    peer.recv(sink).wait()
    peer.send(sink + 1).wait()


def test_connecting_again_gives_the_same_peer(remote):
    with remote(answer_pings) as s:
        assert s.ep.connect(s.address) == s.peer
        assert hash(s.ep.connect(s.address)) == hash(s.peer)
        assert s.ep.peers == [s.peer]
        sink = np.zeros(3)
        s.peer.send(np.arange(3.0)).wait()
        s.peer.recv(sink).wait()
        assert sink.tolist() == [1, 2, 3]


def test_both_sides_know_each_other(remote):
    with remote(keep, name="right") as s:
        alive, peer_id = s.keeper.peer()
        assert alive
        assert peer_id == s.ep.id
        assert s.peer.alive
        assert s.peer.name == "right"
        assert s.peer.id != s.ep.id
        assert "right" in repr(s.peer)
        assert isinstance(s.peer.stats(), dict)


def connect_at_once(ep, peer, link, rounds):
    del peer
    for _ in range(rounds):
        address = link.recv()
        link.meet("go")
        mine = ep.connect(address)
        sink = np.zeros(3)
        mine.recv(sink).wait()
        mine.send(sink + 1).wait()
        assert len(ep.peers) == 1
        link.send(mine.id)
        link.meet("used")
        mine.close()
        until(lambda: not [p for p in ep.peers if p.alive], "the round's peer has gone")
        link.meet("closed")


def test_two_that_connect_to_each_other_at_once_become_one_pair(remote, open_endpoint):
    rounds = 15
    with remote(connect_at_once, rounds, connected=False) as s:
        for _ in range(rounds):
            ep = open_endpoint()
            s.link.send(ep.address)
            s.link.meet("go")
            peer = ep.connect(s.address)
            sink = np.zeros(3)
            peer.send(np.arange(3.0)).wait()
            peer.recv(sink).wait()
            assert sink.tolist() == [1, 2, 3]
            assert ep.peers == [peer]
            assert s.link.recv() == ep.id
            s.link.meet("used")
            s.link.meet("closed")
            ep.close()


def test_threads_that_connect_at_once_get_one_peer(remote):
    with remote(keep, connected=True) as s:
        s.peer.close()
        barrier = threading.Barrier(8)

        def connect():
            barrier.wait(10)
            return s.ep.connect(s.address)

        peers = [attempt.value() for attempt in [Attempt(connect) for _ in range(8)]]
        assert all(peer == peers[0] for peer in peers)
        assert len(s.ep.peers) == 1


def accept_all(ep, peer, link, count):
    peers = [ep.accept(timeout=10) for _ in range(count)]
    assert len({p.id for p in peers}) == count
    assert sorted(p.name for p in peers) == [f"number {n}" for n in range(count)]
    with pytest.raises(zh.TransferTimeout):
        ep.accept(timeout=0.05)
    for one in peers:
        one.notify(1, int(one.name.split()[1]) + 1).wait()
    link.meet("done")


def test_accept_hands_out_each_peer_once(remote, open_endpoint):
    with remote(accept_all, 6, connected=False) as s:
        endpoints = [open_endpoint(name=f"number {n}") for n in range(6)]
        for ep in endpoints:
            ep.connect(s.address)
        for number, ep in enumerate(endpoints):
            assert ep.wait_notify(1) == number + 1
        s.link.meet("done")


def accept_late(ep, peer, link):
    """Accepts nobody until asked to; then only the last comer is alive."""
    link.meet("all came and went")
    alive = None
    met = 0
    while alive is None:
        peer = ep.accept(timeout=5)
        met += 1
        if peer.alive:
            alive = peer
    link.send(met)
    alive.notify(1, 5).wait()
    with pytest.raises(zh.TransferTimeout):
        ep.accept(timeout=0.05)


def test_those_who_leave_before_they_are_accepted_do_not_pile_up(process, device, open_endpoint):
    comers = 150
    with process(accept_late, connected=False) as s:
        before = len(socket_inodes(s.pid))
        for _ in range(comers):
            with zh.Endpoint(device, timeout=5) as ep:
                ep.connect(s.address)
        until(lambda: len(socket_inodes(s.pid)) <= before, "their connections are closed")
        honest = open_endpoint()
        with within(5):
            honest.connect(s.address)
        s.link.meet("all came and went")
        assert s.link.recv() < 100  # what the lost ones have sent is kept for some of them
        assert honest.wait_notify(1) == 5


def write_own_row(ep, peer, link, count):
    """`count` endpoints of this process, each writing its own row and notifying."""
    del peer
    address, far = link.recv()
    endpoints = [zh.Endpoint(ep.device, timeout=20) for _ in range(count)]
    peers = [one.connect(address) for one in endpoints]
    for value in range(1, 6):
        for row, (one, peer) in enumerate(zip(endpoints, peers, strict=True)):
            values = np.full(1000, value * 1000 + row)
            peer.write(one.register(values), far[row], notify=(row, value))
        link.meet(f"round {value}")
    for one in endpoints:
        one.close()


def test_sixty_peers_at_once(remote):
    count = 60
    with remote(write_own_row, count, connected=False, deadline=40) as s:
        memory, view = array(s.ep, "numpy", np.zeros((count, 1000), int))
        s.link.send((s.ep.address, memory.remote))
        for value in range(1, 6):
            left = set(range(count))
            while left:
                slot, seen = s.ep.wait_notify_any(0, count)
                assert seen == value
                assert (view[slot] == value * 1000 + slot).all()
                left.remove(slot)
            if value == 5:
                assert len(s.ep.peers) == count
            s.link.meet(f"round {value}")
        until(lambda: not any(p.alive for p in s.ep.peers), "all have left")


def test_an_endpoint_and_itself(open_endpoint):
    """Connecting to oneself either works or is refused in words; it does not hang."""
    ep = open_endpoint()
    far = ep.empty(100)
    with within(5):
        try:
            peer = ep.connect(ep.address, timeout=4)
        except (zh.Error, ValueError) as error:
            refusal = str(error)
        else:
            peer.write(ep.register(np.ones(100, np.uint8)), far.remote).wait()
            refusal = None
    assert refusal is None or "own" in refusal
    assert refusal is not None or np.asarray(far).all()

"""max_peers: one more Peer is refused at both ends and in words; those that are there do not notice."""

import errno

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.keeper import keep
from support.link import until
from support.ranks import TIMEOUT, close


def works(ep, peer, back):
    """Bytes and a notification go both ways."""
    for near, far in ((peer, back), (back, peer)):
        sink = np.zeros(3)
        received = far.recv(sink)
        near.send(np.arange(3.0)).wait()
        received.wait()
        assert sink.tolist() == [0, 1, 2]


def test_what_suffices_is_reported_and_kept(open_endpoint):
    ep = open_endpoint(name="hub", max_peers=2)
    others = [open_endpoint() for _ in range(3)]
    peers = [ep.connect(other.address) for other in others[:2]]
    backs = [other.accept() for other in others[:2]]
    for _ in range(3):  # nothing is left behind that would count
        words = "'hub' has 2 Peers, as many as its max_peers"
        with pytest.raises(zh.Error, match=words), within(5):
            ep.connect(others[2].address)
    assert ep.connect(others[0].address) == peers[0]  # that is no further one
    works(ep, peers[0], backs[0])
    peers[1].close()
    third = ep.connect(others[2].address)
    works(ep, third, others[2].accept())
    assert len(ep.peers) == 2


def test_who_comes_one_too_many_is_refused_in_words(process):
    """A process is full; who is refused may come again once another has left."""
    with (
        process(keep, name="full", max_peers=1) as s,
        zh.Endpoint(s.ep.device, timeout=10) as late,
    ):
        for _ in range(3):
            words = r"'full' has 1 Peers, .* max_peers"
            with pytest.raises(zh.PeerLost, match=words) as refused, within(5):
                late.connect(s.address)
            assert refused.value.code == errno.EUSERS
        assert s.keeper.peer() == (True, s.ep.id)


@pytest.mark.parametrize("most", [1, 2])
def test_two_that_connect_to_each_other_at_once_take_one_place(open_endpoint, most):
    for _ in range(20):
        a, b = open_endpoint(max_peers=most), open_endpoint(max_peers=most)
        attempts = [Attempt(a.connect, b.address), Attempt(b.connect, a.address)]
        there, back = (attempt.value() for attempt in attempts)
        works(a, there, back)


class Shared(dict):
    """A store of one run, of which every address is a rank that is there."""

    def set(self, key, value):
        self[key] = bytes(value)


def test_a_rank_that_has_no_place_is_not_lost(rank_threads):
    store = Shared()
    options = {"device": rank_threads.device, "timeout": TIMEOUT, "max_peers": 1}
    ranks = [zh.World(store, rank, 3, **options) for rank in range(3)]
    assert ranks[0].peer(1).alive
    with pytest.raises(zh.TransferTimeout, match=r"rank 0: .* max_peers"):
        ranks[2].peer(0, 0.5)
    with pytest.raises(
        zh.TransferTimeout, match=r"rank 0: .* max_peers"
    ):  # which it tells in step 0
        ranks[2].barrier(0.5)
    assert ranks[2].state() == ["healthy"] * 3
    ranks[0].peer(1).close()
    until(lambda: not ranks[0].endpoint.peers, "it has left")
    assert ranks[2].peer(0).alive
    close(ranks)

"""Queue pairs that rdma_cm connects over RoCE (the knob rdma_cm): on Soft-RoCE, by the kernel's own connection manager."""

import signal
from collections.abc import Iterator

import numpy as np
import pytest
import zerohop as zh
from support.link import until
from support.program import run_python

DEVICE = "rxe0"
NBYTES = 1 << 20


@pytest.fixture
def couple() -> Iterator[tuple[zh.Endpoint, zh.Peer, zh.Endpoint]]:
    """An Endpoint, its Peer, and the Endpoint behind that."""
    with (
        zh.Endpoint(DEVICE, p2p=0, rdma_cm=1) as ours,
        zh.Endpoint(DEVICE, p2p=0, rdma_cm=1) as theirs,
    ):
        yield ours, ours.connect(theirs.address), theirs


def test_all_that_a_queue_pair_does_works_in_both_directions(couple) -> None:
    ours, to_theirs, theirs = couple
    to_ours = theirs.accept()
    for here, peer, there in ((ours, to_theirs, theirs), (theirs, to_ours, ours)):
        source = np.random.default_rng(3).integers(0, 256, NBYTES, np.uint8)
        target, back = np.zeros_like(source), np.zeros_like(source)
        far = there.register(target)
        peer.write(here.register(source), far.remote, notify=(3, 7)).wait()
        assert there.wait_notify(3) == 7
        assert (target == source).all()
        peer.read(far.remote, here.register(back)).wait()
        assert (back == source).all()
        word = np.zeros(1, np.int64)
        counter = there.register(word)
        assert peer.fetch_add(counter.remote[0], 5).wait() == 0
        assert word[0] == 5


def test_a_fixed_type_of_service_reaches_the_connection() -> None:
    with (
        zh.Endpoint(DEVICE, p2p=0, rdma_cm=1, traffic_class=104) as ours,
        zh.Endpoint(DEVICE, p2p=0, rdma_cm=1, traffic_class=104) as theirs,
    ):
        inbox = np.zeros(9)
        memory = theirs.register(inbox)
        ours.connect(theirs.address).write(np.ones(9), memory.remote).wait()
        assert (inbox == 1).all()


def test_ends_that_differ_say_so() -> None:
    with zh.Endpoint(DEVICE, rdma_cm=1) as ours, zh.Endpoint(DEVICE) as theirs:
        for dialling, other in ((ours, theirs), (theirs, ours)):
            with pytest.raises(zh.Error, match=r"by rdma_cm over RoCE.*the same rdma_cm="):
                dialling.connect(other.address)


def test_a_device_without_an_address_says_so() -> None:
    with pytest.raises(
        zh.VerbsError, match=r"queue pairs of soft0, the software HCA: leave rdma_cm out"
    ):
        zh.Endpoint("soft0", rdma_cm=1)


KILLED = f"""
import os, signal, sys
import numpy as np
import zerohop as zh
with zh.Endpoint("{DEVICE}", p2p=0, rdma_cm=1) as endpoint:
    endpoint.connect(bytes.fromhex(sys.argv[1])).notify(1, 1).wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_peer_is_lost_and_the_next_one_connects() -> None:
    with zh.Endpoint(DEVICE, p2p=0, rdma_cm=1) as ours:
        for _ in range(3):
            done = run_python("-c", KILLED, ours.address.hex(), seconds=60)
            assert done.returncode == -signal.SIGKILL, done.stderr
            peer = ours.accept()
            assert ours.wait_notify(1) == 1
            until(lambda peer=peer: not peer.alive, "the peer is lost", 10)

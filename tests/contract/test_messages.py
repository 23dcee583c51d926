"""send and recv: any size, any tag, any order, in both directions at once."""

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, block, pattern
from support.keeper import keep

# Around every boundary that an eager protocol could have, and far beyond.
SIZES = [0, 1, 8, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192, 8193,
         16384, 16385, 32768, 32769, 65535, 65536, 65537, 1 << 20, (5 << 20) + 3]  # fmt: skip


def echo_sizes(ep, peer, link, kind):
    room = block(ep, kind, max(SIZES))
    for seed, nbytes in enumerate(SIZES):
        assert peer.recv(room.memory, tag=seed).wait() == nbytes
        np.testing.assert_array_equal(room.bytes[:nbytes], pattern(nbytes, seed))
        peer.send(room.memory[:nbytes], tag=seed).wait()
        room.check_guards()


def test_messages_of_any_size_arrive_whole(remote, kind):
    with remote(echo_sizes, kind) as s:
        for seed, nbytes in enumerate(SIZES):
            out, back = block(s.ep, kind, nbytes), block(s.ep, kind, nbytes)
            out.bytes[:] = pattern(nbytes, seed)
            s.peer.send(out.memory, tag=seed).wait()
            out.bytes[:] = 0
            assert s.peer.recv(back.memory, tag=seed).wait() == nbytes
            np.testing.assert_array_equal(back.bytes, pattern(nbytes, seed))
            back.check_guards()


def send_all(ep, peer, link, tags, nbytes):
    transfers = []
    for number, tag in enumerate(tags):
        memory = ep.register(np.full(nbytes, number, np.uint8))
        transfers.append(peer.send(memory, tag=tag))
    link.meet("sent")
    for transfer in transfers:
        transfer.wait()


@pytest.mark.parametrize("nbytes", [16, 200_000])
def test_unexpected_messages_wait_for_their_recv(remote, nbytes):
    """All are sent before the first is asked for; then they are asked for in another order."""
    tags = [5, 6, 5, 7, 6, 5, 0, 2**31, 2**32 - 1]
    with remote(send_all, tags, nbytes) as s:
        s.link.meet("sent")
        taken = []
        for tag in [2**32 - 1, 5, 6, 0, 5, 7, 2**31, 6, 5]:
            sink = block(s.ep, "numpy", nbytes)
            assert s.peer.recv(sink.memory, tag=tag).wait() == nbytes
            assert (sink.bytes == sink.bytes[0]).all()
            taken.append((tag, int(sink.bytes[0])))
        for tag in set(tags):  # of one tag, the first sent is the first received
            assert [n for t, n in taken if t == tag] == [n for n, t in enumerate(tags) if t == tag]


def test_recvs_posted_first_match_in_order(remote):
    with remote(send_all, [1] * 50, 3000) as s:
        sinks = [block(s.ep, "numpy", 3000) for _ in range(50)]
        transfers = [s.peer.recv(sink.memory, tag=1) for sink in sinks]
        s.link.meet("sent")
        for number, (sink, transfer) in enumerate(zip(sinks, transfers, strict=True)):
            assert transfer.wait() == 3000
            assert (sink.bytes == number).all()


def test_mixed_sizes_of_one_tag_stay_in_order(remote):
    """A small message must not overtake a large one before it."""
    with remote(send_mixed) as s:
        for number in range(60):
            sink = block(s.ep, "empty", 300_000)
            nbytes = s.peer.recv(sink.memory, tag=9).wait()
            assert nbytes == (300_000 if number % 3 == 0 else 10 + number)
            assert (sink.bytes[:nbytes] == number).all()


def send_mixed(ep, peer, link):
    transfers = []
    for number in range(60):
        nbytes = 300_000 if number % 3 == 0 else 10 + number
        transfers.append(peer.send(ep.register(np.full(nbytes, number, np.uint8)), tag=9))
    for transfer in transfers:
        transfer.wait()


def send_too_much(ep, peer, link, nbytes):
    for tag in (1, 2):
        peer.send(ep.register(np.full(nbytes, tag, np.uint8)), tag=tag).wait()


@pytest.mark.parametrize("nbytes", [100, 500_000])
def test_a_recv_that_is_too_small_fails_and_writes_nothing_beyond(remote, nbytes):
    with remote(send_too_much, nbytes) as s:
        small, enough = block(s.ep, "numpy", nbytes - 1), block(s.ep, "numpy", nbytes)
        with pytest.raises((zh.Error, ValueError), match=str(nbytes)):
            s.peer.recv(small.memory, tag=1).wait()
        small.check_guards()
        assert s.peer.recv(enough.memory, tag=1).wait() == nbytes  # the message is still there
        assert (enough.bytes == 1).all()
        assert s.peer.recv(enough.memory, tag=2).wait() == nbytes  # the Peer goes on
        assert (enough.bytes == 2).all()


def test_arrays_are_taken_as_they_are(remote):
    """send and recv take arrays too; strided ones are packed and spread."""
    with remote(echo_arrays) as s:
        values = np.arange(24, dtype=np.int32).reshape(4, 6)
        back = np.zeros_like(values)
        s.peer.send(values).wait()
        s.peer.send(values[:, ::-2]).wait()
        assert s.peer.recv(back[::-1]).wait() == values.nbytes
        np.testing.assert_array_equal(back[::-1], values)
        narrow = np.full((4, 6), -1, np.int32)
        assert s.peer.recv(narrow[:, 1::2]).wait() == values.nbytes // 2
        np.testing.assert_array_equal(narrow[:, 1::2], values[:, ::-2])
        assert (narrow[:, ::2] == -1).all()


def echo_arrays(ep, peer, link):
    whole, narrow = np.zeros((4, 6), np.int32), np.zeros((4, 3), np.int32)
    peer.recv(whole).wait()
    peer.recv(narrow).wait()
    peer.send(whole).wait()
    peer.send(narrow).wait()


COUNT = 3000


def storm(ep, peer, link, nbytes):
    run_storm(ep, peer, nbytes)


def run_storm(ep, peer, nbytes):
    """Sends COUNT messages and only then begins to receive the COUNT of the other side."""
    out, _ = array(ep, "numpy", np.arange(COUNT * nbytes // 4, dtype=np.uint32).reshape(COUNT, -1))
    sink, view = array(ep, "numpy", np.zeros((COUNT, nbytes // 4), np.uint32))
    sends = [peer.send(out[i], tag=i % 7) for i in range(COUNT)]
    recvs = [peer.recv(sink[i], tag=i % 7) for i in range(COUNT)]
    for transfer in recvs + sends:
        transfer.wait()
    np.testing.assert_array_equal(view.ravel(), np.arange(COUNT * nbytes // 4, dtype=np.uint32))


@pytest.mark.parametrize("nbytes", [64, 20_000])
def test_a_storm_in_both_directions_does_not_block(remote, nbytes):
    with remote(storm, nbytes, deadline=40, timeout=30.0) as s:
        run_storm(s.ep, s.peer, nbytes)


def test_messages_of_two_peers_are_kept_apart(remote):
    with remote(send_all, [1, 1], 50) as a, remote(send_all, [1, 1], 50, endpoint=a.ep) as b:
        for s in (a, b):
            s.link.meet("sent")
        for s in (b, a):
            for number in range(2):
                sink = block(a.ep, "numpy", 50)
                s.peer.recv(sink.memory, tag=1).wait()
                assert (sink.bytes == number).all()


@pytest.mark.parametrize("tag", [-1, 2**32, "a", 1.5])
def test_senseless_tags_are_refused(thread, tag):
    with thread(keep) as s:
        for verb in (s.peer.send, s.peer.recv):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                verb(np.zeros(3), tag=tag)

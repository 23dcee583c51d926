"""integrity=1: what is transferred is compared end to end, and a notification follows the comparison."""

import asyncio
import signal
import threading

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, block, pattern
from support.attempt import LOST_WITHIN, within
from support.keeper import keep
from support.link import until

CHECKED = 1 << 20  # bytes that have a checksum of their own
SIZES = [0, 1, 7, 4097, CHECKED, CHECKED + 1, (5 << 20) + 3]


@pytest.fixture(autouse=True)
def integrity(monkeypatch):
    """Of this side alone: that is enough for the connection."""
    monkeypatch.setenv("ZEROHOP_INTEGRITY", "1")


def serve(ep, peer, link, kind, nbytes):
    """Two blocks that the other side may use; tells what is in them, and what was notified."""
    blocks = [block(ep, kind, nbytes) for _ in range(2)]
    for number, each in enumerate(blocks):
        each.bytes[:] = pattern(nbytes, number)
        ep.share(str(number), each.memory)
    link.send("ready")
    while (order := link.recv()) != "end":
        if order == "slots":
            link.send([ep.peek_notify(slot) for slot in range(4)])
        else:
            blocks[order].check_guards()
            link.send(np.array(blocks[order].bytes).tobytes())


class Far:
    def __init__(self, session):
        self.link, self.peer = session.link, session.peer
        assert self.link.recv() == "ready"
        self.remote = [self.peer[name] for name in "01"]

    def content(self, number):
        self.link.send(number)
        return np.frombuffer(self.link.recv(), np.uint8)

    def slots(self):
        self.link.send("slots")
        return self.link.recv()

    def end(self):
        self.link.send("end")


def test_what_arrives_is_whole_and_nothing_is_reported(remote, kind):
    with remote(serve, kind, max(SIZES)) as s:
        far = Far(s)
        assert (
            s.peer.route(block(s.ep, kind, 1).memory, far.remote[0][:1]).settings["integrity"] == 1
        )
        for seed, nbytes in enumerate(SIZES):
            near = block(s.ep, kind, nbytes)
            near.bytes[:] = pattern(nbytes, seed)
            s.peer.write(
                near.memory, far.remote[0][3 : 3 + nbytes] if nbytes < max(SIZES) else far.remote[0]
            ).wait()
            start = 3 if nbytes < max(SIZES) else 0
            np.testing.assert_array_equal(
                far.content(0)[start : start + nbytes], pattern(nbytes, seed)
            )
            s.peer.read(far.remote[1][:nbytes], near.memory).wait()
            np.testing.assert_array_equal(near.bytes, far.content(1)[:nbytes])
            near.check_guards()
        far.end()


PIECES = 40_000  # more than copies of their own are made of


def test_arrays_in_many_small_pieces_are_compared(remote, kind):
    with remote(serve, kind, 8 * PIECES) as s:
        far = Far(s)
        memory, view = array(s.ep, kind, pattern(16 * PIECES, 3).reshape(PIECES, 16))
        there = far.remote[0].reshape(PIECES, 8)
        s.peer.write(memory[:, 4:12], there, notify=(1, 1)).wait()
        np.testing.assert_array_equal(far.content(0), np.array(view)[:, 4:12].ravel())
        s.peer.read(far.remote[1].reshape(PIECES, 8), memory[:, 8:]).wait()
        np.testing.assert_array_equal(np.array(view)[:, 8:].ravel(), far.content(1))
        far.end()


def test_two_that_write_the_same_bytes_are_found(remote, kind):
    """What lands first is overwritten: one of the pairs is not what arrives. They differ in one byte."""
    nbytes = 3 * CHECKED
    with remote(serve, kind, nbytes) as s:
        far = Far(s)
        one, other = block(s.ep, kind, nbytes), block(s.ep, kind, nbytes)
        content = pattern(nbytes, 7)
        one.bytes[:] = content
        content[CHECKED + 5] ^= 1
        other.bytes[:] = content
        pairs = [(one.memory, far.remote[0]), (other.memory, far.remote[0])]
        with pytest.raises(
            zh.IntegrityError, match="bytes 1048576 to 2097151 have CRC32C"
        ) as caught:
            s.peer.write_many(pairs, notify=(1, 1)).wait()
        assert (caught.value.offset, caught.value.nbytes) == (CHECKED, CHECKED)
        assert caught.value.effect == "all"
        assert "of pair " in str(caught.value)
        assert s.peer.name in str(caught.value)
        s.peer.write(one.memory, far.remote[0], notify=(2, 5)).wait()  # goes on
        until(lambda: far.slots()[2] == 5, "the later notification is there")
        assert far.slots() == [0, 0, 5, 0]  # the other one was not delivered
        far.end()


def test_two_that_read_into_the_same_bytes_are_found(remote, kind):
    with remote(serve, kind, 4097) as s:
        far, near = Far(s), block(s.ep, kind, 4097)
        with pytest.raises(zh.IntegrityError, match=r"^read with peer .* bytes 0 to 4096 have"):
            s.peer.read_many([(far.remote[n], near.memory) for n in range(2)], notify=(1, 1)).wait()
        s.peer.read(far.remote[1], near.memory, notify=(2, 1)).wait()
        until(lambda: far.slots()[2] == 1, "the later notification is there")
        assert far.slots() == [0, 0, 1, 0]
        far.end()


def test_notifications_behind_a_failure_are_withheld_and_those_before_it_are_not(remote):
    nbytes = 2 * CHECKED
    with remote(serve, "numpy", nbytes) as s:
        far = Far(s)
        first, second = s.ep.register(pattern(nbytes, 1)), s.ep.register(pattern(nbytes, 2))
        good = s.peer.write(first, far.remote[1], notify=(0, 1))
        bad = s.peer.write_many([(first, far.remote[0]), (second, far.remote[0])])
        notified = s.peer.notify(3, 1)
        good.wait()
        with pytest.raises(zh.IntegrityError, match="delivered wrong data"):
            bad.wait()
        with pytest.raises(zh.IntegrityError, match="the notification behind it was withheld"):
            notified.wait()
        s.peer.notify(2, 1).wait()
        until(lambda: far.slots()[2] == 1, "the later notification is there")
        assert far.slots() == [1, 0, 1, 0]
        far.end()


def test_notifications_stay_in_order_behind_transfers_of_any_size(remote):
    with remote(serve, "numpy", 8 * CHECKED) as s:
        far = Far(s)
        source = s.ep.register(pattern(8 * CHECKED))
        sizes = [8 * CHECKED, 1, 0, 3 * CHECKED, 5]
        transfers = [
            s.peer.write(source[:nbytes], far.remote[0][:nbytes], notify=(1, number + 1))
            for number, nbytes in enumerate(sizes)
        ]
        for transfer in transfers:
            transfer.wait()
        until(lambda: far.slots()[1] == len(sizes), "the last notification stays")
        far.end()


def test_pages_and_strided_arrays_are_compared_by_element(remote, kind):
    with remote(serve, kind, 64 * 1000) as s:
        far = Far(s)
        near, view = array(s.ep, kind, pattern(64_000, 5).reshape(64, 1000))
        order = list(reversed(range(64)))
        s.peer.write_pages(near, far.remote[0].reshape(64, 1000), range(64), order).wait()
        np.testing.assert_array_equal(far.content(0), np.asarray(view)[order].reshape(-1))
        s.peer.write(near[:, 3], far.remote[1][0:6400:100]).wait()
        np.testing.assert_array_equal(far.content(1)[0:6400:100], np.asarray(view)[:, 3])
        twice = [1, *order[1:]]  # which of two pages stays is not said: the other one is found
        with pytest.raises(zh.IntegrityError, match="of pair "):
            s.peer.write_pages(near, far.remote[0].reshape(64, 1000), range(64), twice).wait()
        far.end()


def exchange(ep, peer, link, kind, sizes):
    for tag, nbytes in enumerate(sizes):
        room = block(ep, kind, nbytes + 1)
        assert peer.recv(room.memory, tag=tag).wait() == nbytes
        np.testing.assert_array_equal(room.bytes[:nbytes], pattern(nbytes, tag))
        peer.send(room.memory[:nbytes], tag=tag).wait()


def test_messages_of_any_size_are_compared(remote, kind):
    sizes = [0, 1, 16379, 16380, 16381, 16384, 16385, CHECKED + 1]
    with remote(exchange, kind, sizes) as s:
        for tag, nbytes in enumerate(sizes):
            out, back = block(s.ep, kind, nbytes), block(s.ep, kind, nbytes)
            out.bytes[:] = pattern(nbytes, tag)
            s.peer.send(out.memory, tag=tag).wait()
            assert s.peer.recv(back.memory, tag=tag).wait() == nbytes
            np.testing.assert_array_equal(back.bytes, pattern(nbytes, tag))


def test_a_message_that_changed_on_its_way_is_found(open_endpoint):
    """The source is changed between send() and the recv that takes it, as a fault of its memory would."""
    a, b = open_endpoint(), open_endpoint()
    to_b = a.connect(b.address)
    to_a = b.accept()
    source, into = pattern(100_000), np.zeros(100_000, np.uint8)
    sent = to_b.send(source, tag=1)
    source[77] ^= 1
    with pytest.raises(
        zh.IntegrityError, match=r"^recv from peer .* the 100000 bytes have checksum"
    ):
        to_a.recv(into, tag=1).wait()
    sent.wait()  # the receiver took it, and tells its own program
    again = to_b.send(source, tag=1)
    assert to_a.recv(into, tag=1).wait() == 100_000
    again.wait()
    np.testing.assert_array_equal(into, source)


def test_a_bit_that_the_device_does_not_find_is_found(open_endpoint, monkeypatch):
    monkeypatch.setenv("ZEROHOP_P2P", "0")
    a = open_endpoint(faults="seed=3,alter=1")
    b = open_endpoint()
    peer, inbox = a.connect(b.address), b.empty(200_000)
    with pytest.raises(zh.IntegrityError, match="by host"):
        peer.write(pattern(200_000), inbox.remote).wait()
    assert np.count_nonzero(np.asarray(inbox) != pattern(200_000)) == 4  # a bit of each packet
    a.set_faults(None)
    peer.write(pattern(200_000), inbox.remote, notify=(1, 1)).wait()
    assert b.wait_notify(1, timeout=5) is not None
    np.testing.assert_array_equal(np.asarray(inbox), pattern(200_000))


def ending(transfer):
    try:
        transfer.wait()
    except zh.Error as error:
        return type(error).__name__
    return "done"


def test_memory_that_is_closed_meanwhile_is_an_error_or_was_compared(open_endpoint):
    """Never anything else: what was written and then closed cannot be compared, and says so."""
    a, b = open_endpoint(), open_endpoint()
    peer = a.connect(b.address)
    memory = b.register(np.zeros(64 << 20, np.uint8))
    source = a.register(np.zeros(64 << 20, np.uint8))
    transfer = peer.write(source, memory.remote)
    closer = threading.Thread(target=memory.close)
    closer.start()
    assert ending(transfer) in {"done", "VerbsError"}
    closer.join()
    other = b.empty(1000)
    peer.write(pattern(1000), other.remote).wait()


@pytest.mark.parametrize("stopped", [signal.SIGKILL, signal.SIGSTOP])
def test_a_peer_that_dies_or_hangs_meanwhile_is_lost(process, stopped):
    with process(keep) as s:
        nbytes = 16 << 20
        target = s.keeper.array("numpy", np.zeros(nbytes, np.uint8))
        source = s.ep.register(pattern(nbytes))
        transfers = [s.peer.write(source, target.remote, notify=(1, 1)) for _ in range(8)]
        s.signal(stopped)
        with within(LOST_WITHIN):
            endings = [ending(transfer) for transfer in transfers]
        assert endings[-1] == "PeerLost"
        assert set(endings) <= {"done", "PeerLost"}


def test_closing_waits_for_the_comparison(open_endpoint):
    a, b = open_endpoint(), open_endpoint()
    peer, inbox = a.connect(b.address), b.empty(32 << 20)
    transfer = peer.write(pattern(32 << 20), inbox.remote, notify=(1, 3))
    peer.close()
    transfer.wait()
    assert b.wait_notify(1, timeout=5) is not None


def test_a_wait_that_ends_early_ends_no_comparison(open_endpoint):
    a, b = open_endpoint(), open_endpoint()
    peer, inbox = a.connect(b.address), b.empty(8 << 20)

    async def cancel(transfer):
        waiting = asyncio.ensure_future(transfer)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await transfer

    ended_early = 0
    for seed in range(100):  # on a busy machine a transfer may be over before anybody waits for it
        transfer = peer.write(pattern(8 << 20, seed), inbox.remote, notify=(seed, 1))
        try:
            transfer.wait(0)
        except zh.TransferTimeout:
            ended_early += 1
        asyncio.run(cancel(transfer))
        np.testing.assert_array_equal(np.asarray(inbox), pattern(8 << 20, seed))
        b.wait_notify(seed, timeout=5)
        if ended_early == 2:
            return
    pytest.fail("every transfer was over before anybody waited for it")

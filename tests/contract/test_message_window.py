"""Ends that take different numbers and sizes of messages: the other keeps to what each announced.

A message that finds no buffer fails at once here (rnr_retry=0), and its queue pair with it.
"""

import numpy as np
import pytest
import zerohop as zh
from support.arrays import block, pattern
from support.attempt import Attempt
from support.link import until
from support.program import run_python
from support.refusals import IWARP

# message_slots and message_bytes of this end and of the other.
WINDOWS = [
    ((1, 64), (1, 64)),
    ((1, 64), (32, 16384)),
    ((2, 1000), (5, 70_000)),
    ((7, 300), (6, 200)),
    ((3, 1 << 20), (4096, 4096)),
]
STRICT = {"rnr_retry": 0}
SENDS = 16  # buffers that come at once for messages on their way out
NOTES = 200  # more than fit on the way, of all but one


def keywords(window):
    return {"message_slots": window[0], "message_bytes": window[1], **STRICT}


def sizes(*windows):
    """Around what travels in the message, for either end, and beyond."""
    limits = [nbytes for _, nbytes in windows]
    return sorted({0, 1, 2_000_000, *(limit + more for limit in limits for more in (-1, 0, 1))})


def exchange(ep, peer, link, mine, theirs):
    talk(ep, peer, 1, 0, mine, theirs)


def talk(ep, peer, tag_out, tag_in, mine, theirs):
    """Both sides send all before they take any, then notify one another."""
    for slots in ([0], range(NOTES)):
        every = sizes(mine, theirs) if len(slots) == 1 else [8] * NOTES
        out = [block(ep, "numpy", nbytes) for nbytes in every]
        for seed, each in enumerate(out):
            each.bytes[:] = pattern(len(each.bytes), seed + tag_out)
        sends = [peer.send(each.memory, tag=tag_out) for each in out]
        for seed, nbytes in enumerate(every):
            sink = block(ep, "numpy", nbytes)
            assert peer.recv(sink.memory, tag=tag_in).wait() == nbytes
            np.testing.assert_array_equal(sink.bytes, pattern(nbytes, seed + tag_in))
            sink.check_guards()
        for send in sends:
            send.wait()
    for slot in range(NOTES):
        peer.notify(slot, slot + 1)
    for slot in range(NOTES):
        assert ep.wait_notify(slot) == slot + 1
    assert peer.stats()["queue_pair_errors"] == 0


@pytest.mark.parametrize(("mine", "theirs"), WINDOWS)
def test_messages_of_every_size_pass_between_any_two(remote, open_endpoint, mine, theirs):
    with (
        open_endpoint(**keywords(mine)) as ep,
        remote(exchange, theirs, mine, endpoint=ep, **keywords(theirs)) as s,
    ):
        talk(ep, s.peer, 0, 1, mine, theirs)


def both_ways(a, b, mine, theirs):
    """Connects the two and has both talk at once."""
    peer, back = a.connect(b.address), b.accept()
    far = Attempt(talk, b, back, 1, 0, theirs, mine)
    talk(a, peer, 0, 1, mine, theirs)
    far.value()
    return peer, back


def test_each_rail_has_its_own_window():
    rails = "soft0,soft0@127.0.0.2"
    mine, theirs = (2, 100), (3, 4096)
    with (
        zh.Endpoint(rails, p2p=0, **keywords(mine)) as a,
        zh.Endpoint(rails, p2p=0, **keywords(theirs)) as b,
    ):
        a.connect(b.address)
        assert a.stats()["nbytes_registered"] == 2 * (2 + 5) * (40 + 100)
        both_ways(a, b, mine, theirs)


def carries(peer):
    try:
        peer.notify(NOTES, 1).wait()
    except zh.VerbsError:
        return False
    return True


def test_a_window_begins_anew_with_a_queue_pair(device):
    """What the broken one had under way or counted does not bound the messages of its successor."""
    mine, theirs = (1, 64), (2, 64)
    with (
        zh.Endpoint(device, p2p=0, **keywords(mine)) as a,
        zh.Endpoint(device, p2p=0, **keywords(theirs)) as b,
    ):
        peer, back = both_ways(a, b, mine, theirs)
        closed = b.empty(8)
        remote = closed.remote
        closed.close()
        for round_ in range(3):
            with pytest.raises(zh.VerbsError):
                peer.write(np.ones(8, np.uint8), remote).wait()
            until(lambda: carries(peer) and carries(back), "both ends have a fresh queue pair")
            for slot in range(NOTES):
                peer.notify(slot, round_ + 1)
                back.notify(slot, round_ + 1)
            for ep in (a, b):
                assert [ep.wait_notify(slot) for slot in range(NOTES)] == [round_ + 1] * NOTES
        assert peer.stats()["queue_pair_errors"] == 3


@pytest.mark.parametrize(("slots", "nbytes"), [(32, 16384), (1, 64), (5, 4096), (4096, 64)])
def test_what_is_registered_for_messages_is_as_documented(open_endpoint, slots, nbytes):
    """message_slots + 5 to receive, with a header each, for the first Peers; to send, only once something is sent."""
    with (
        open_endpoint(message_slots=slots, message_bytes=nbytes, send_depth=254) as ep,
        open_endpoint() as other,
    ):
        assert ep.stats()["nbytes_registered"] == 0
        peer = ep.connect(other.address)
        receives = (slots + 5) * (40 + nbytes)
        assert ep.stats()["nbytes_registered"] == receives
        (rail,) = peer.stats()["rails"]
        assert rail["nbytes_registered"] == 8 * (254 + (5 if IWARP else 2))
        sending = peer.send(np.ones(64, np.uint8), tag=1)
        other.accept().recv(np.zeros(64, np.uint8), tag=1).wait()
        sending.wait()
        assert ep.stats()["nbytes_registered"] == receives + SENDS * (40 + nbytes)


# Its threads may still want arenas of malloc, 64 MiB of addresses each.
NO_ROOM = """
import resource, zerohop as zh
with zh.Endpoint({device!r}, message_slots=4096, message_bytes=1 << 20) as ep, zh.Endpoint({device!r}) as other:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, before[1]))
    try:
        ep.connect(other.address)
    except zh.RegistrationError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert ep.connect(other.address).alive
"""


def test_more_than_can_be_mapped_is_reported_with_the_knobs(device):
    """4101 messages of a MiB each are 4.3 GB: more than this process has addresses for."""
    done = run_python("-c", NO_ROOM.format(device=device), seconds=40)
    assert done.returncode == 0, done.stderr
    assert "cannot map 4300374216 bytes" in done.stdout
    assert "message_slots or message_bytes" in done.stdout

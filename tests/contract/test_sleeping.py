"""max_awake_peers: what nobody uses gives its queue pairs back at both ends, and whatever needs them has fresh ones."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.link import until

NBYTES = 40_000  # more than a message carries
GUESTS = 3
RAILS = ["soft0", "soft0@127.0.0.2"]


def asleep(peer):
    return any(rail["asleep"] for rail in peer.stats()["rails"])


def registered(peer):
    return sum(rail["nbytes_registered"] for rail in peer.stats()["rails"])


def filled(seed):
    return np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8)


class Guest:
    """What the partner does as it is told; it has no limit of its own."""

    def __init__(self, ep, peer):
        self.ep, self.peer = ep, peer
        self.memory, self.counter = ep.empty(NBYTES, "uint8"), ep.empty(1, "int64")
        np.asarray(self.counter)[:] = 0
        self.sink, self.waiting = np.zeros(NBYTES, np.uint8), None
        for name in ("memory", "counter"):
            ep.share(name, getattr(self, name))

    def state(self):
        return asleep(self.peer), registered(self.peer), self.peer.stats()["sleeps"]

    def content(self):
        return np.array(self.memory)

    def fill(self, seed):
        np.asarray(self.memory)[:] = filled(seed)

    def write(self, seed):
        self.peer.write(self.ep.register(filled(seed)), self.peer["inbox"]).wait()

    def send(self, seed, nbytes):
        self.peer.send(filled(seed)[:nbytes], tag=4).wait()

    def notify(self, slot, value):
        self.peer.notify(slot, value).wait()

    def wait_notify(self, slot):
        return self.ep.wait_notify(slot)

    def recv(self):
        self.sink[:] = 0
        self.waiting = self.peer.recv(self.sink, tag=3)

    def received(self):
        nbytes = self.waiting.wait()
        return self.sink[:nbytes].copy()


def serve(ep, peer, link):
    guest = Guest(ep, peer)
    link.send("ready")
    while (order := link.recv(60)) != "end":
        name, *values = order
        link.send(getattr(guest, name)(*values))


class Room:
    """A guest, as the hub has it."""

    def __init__(self, session):
        self.session, self.peer = session, session.peer
        assert session.link.recv() == "ready"

    def tell(self, name, *values):
        self.session.link.send((name, *values))
        return self.session.link.recv()


class House:
    """A hub of which one Peer may be awake."""

    def __init__(self, hub, sessions):
        self.hub, self.rooms = hub, [Room(session) for session in sessions]
        self.inbox = hub.empty(NBYTES, "uint8")
        hub.share("inbox", self.inbox)

    def sleeps(self, number):
        """Others are used until that one sleeps, at both ends."""
        room, other = self.rooms[number], self.rooms[number - 1]

        def looked():
            other.peer.notify(1, 1).wait()
            return asleep(room.peer) and registered(room.peer) == 0

        until(looked, "it sleeps")
        assert room.tell("state")[:2] == (True, 0)
        return room

    def end(self, rooms=None):
        for room in self.rooms if rooms is None else rooms:
            room.session.link.send("end")


@contextmanager
def house(open_endpoint, remote, **options):
    hub = open_endpoint(name="hub", max_awake_peers=1, **options)
    with ExitStack() as stack:
        yield House(hub, [stack.enter_context(remote(serve, endpoint=hub)) for _ in range(GUESTS)])


def test_what_nobody_uses_gives_back_what_it_has_registered(open_endpoint, remote):
    with house(open_endpoint, remote) as at:
        until(lambda: sum(asleep(room.peer) for room in at.rooms) == 2, "two sleep")
        for room in at.rooms:
            rested = asleep(room.peer)
            assert (registered(room.peer) == 0) == rested
            there, nbytes, sleeps = room.tell("state")
            assert (there, nbytes == 0, sleeps > 0) == (rested, rested, rested)
            stats = room.peer.stats()
            assert stats["sleeps"] == stats["rails"][0]["sleeps"] == sleeps
            assert stats["queue_pair_errors"] == 0
            assert room.peer.alive
        at.end()


# Each of them finds the queue pair asleep.


def writes(at, room):
    near = at.hub.register(filled(1))
    room.peer.write(near, room.peer["memory"], notify=(5, 6)).wait()
    assert room.tell("wait_notify", 5) == 6
    assert (room.tell("content") == filled(1)).all()


def reads(at, room):
    room.tell("fill", 2)
    sink = at.hub.empty(NBYTES, "uint8")
    room.peer.read(room.peer["memory"], sink).wait()
    assert (np.asarray(sink) == filled(2)).all()


def sends(at, room, nbytes=10):
    near = at.hub.register(filled(3)[:nbytes])
    sending = room.peer.send(near, tag=3)
    room.tell("recv")
    sending.wait()
    assert (room.tell("received") == filled(3)[:nbytes]).all()


def sends_more(at, room):
    sends(at, room, NBYTES)


def receives(at, room):
    for nbytes in (10, NBYTES):
        sink = np.zeros(NBYTES, np.uint8)
        waiting = room.peer.recv(sink, tag=4)
        room.tell("send", 4, nbytes)
        assert waiting.wait() == nbytes
        assert (sink[:nbytes] == filled(4)[:nbytes]).all()


def notifies(at, room):
    del at
    room.peer.notify(7, 8).wait()
    assert room.tell("wait_notify", 7) == 8


def adds(at, room):
    del at
    counter = room.peer["counter"][0]
    before = room.peer.fetch_add(counter, 5).wait()
    assert room.peer.fetch_add(counter, -5).wait() == before + 5


def is_written(at, room):
    room.tell("write", 5)
    assert (np.asarray(at.inbox) == filled(5)).all()


def is_notified(at, room):
    room.tell("notify", 9, 10)
    assert at.hub.wait_notify(9) == 10


USES = [
    writes,
    reads,
    sends,
    sends_more,
    receives,
    notifies,
    adds,
    is_written,
    is_notified,
]


def all_uses(at):
    for use in USES:
        room = at.sleeps(0)
        slept = room.peer.stats()["sleeps"]
        use(at, room)
        assert room.peer.alive
        assert room.peer.stats()["queue_pair_errors"] == 0, use.__name__
        at.sleeps(0)
        assert room.peer.stats()["sleeps"] > slept, use.__name__
    at.end()


def test_whatever_needs_the_queue_pair_has_it_back(open_endpoint, remote):
    with house(open_endpoint, remote) as at:
        all_uses(at)


def test_with_checksums_too(open_endpoint, thread):
    with house(open_endpoint, thread, integrity=1) as at:
        all_uses(at)


def test_a_recv_waits_through_a_sleep(open_endpoint, remote):
    with house(open_endpoint, remote) as at:
        at.rooms[0].tell("recv")
        sink = np.zeros(NBYTES, np.uint8)
        waiting = at.rooms[0].peer.recv(sink, tag=4)
        room = at.sleeps(0)
        room.peer.send(filled(1), tag=3).wait()
        assert (room.tell("received") == filled(1)).all()
        at.sleeps(0)
        assert not waiting.done
        room.tell("send", 2, NBYTES)
        assert waiting.wait() == NBYTES
        assert (sink == filled(2)).all()
        at.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
@pytest.mark.parametrize("wakes", [False, True], ids=["unused", "woken"])
def test_who_dies_asleep_is_lost_in_time(open_endpoint, process, number, wakes):
    with house(open_endpoint, process) as at:
        waiting = Attempt(at.rooms[0].peer.recv(np.zeros(8), tag=1).wait)
        room, others = at.sleeps(0), at.rooms[1:]
        room.session.signal(number)
        with within(LOST_WITHIN):
            if wakes:
                with pytest.raises(zh.PeerLost):
                    room.peer.notify(1, 1).wait()
            waiting.failure(zh.PeerLost, timeout=LOST_WITHIN)
        assert not room.peer.alive
        for other in others:
            for use in (writes, is_notified):
                use(at, other)
        at.end(others)


@pytest.mark.parametrize("whose", ["hub", "guest"])
def test_who_sleeps_is_closed_at_once(open_endpoint, whose):
    hub = open_endpoint(max_awake_peers=1)
    guests = [open_endpoint() for _ in range(GUESTS)]
    peers = [hub.connect(guest.address) for guest in guests]
    backs = [guest.accept() for guest in guests]
    until(lambda: sum(map(asleep, peers)) == 2, "two sleep")
    sleeper = next(n for n in range(GUESTS) if asleep(peers[n]))
    with within(2):
        (hub if whose == "hub" else guests[sleeper]).close()
    left = backs if whose == "hub" else [peers[sleeper]]
    until(lambda: not any(peer.alive for peer in left), "the other end knows")
    for peer in left:
        with pytest.raises(zh.PeerLost):
            peer.notify(1, 1)


def test_all_rails_sleep_and_wake():
    with (
        zh.Endpoint(RAILS, p2p=0, stripe_bytes=8192, max_awake_peers=1) as hub,
        zh.Endpoint(RAILS, p2p=0) as one,
        zh.Endpoint(RAILS, p2p=0) as two,
    ):
        peer, other = hub.connect(one.address), hub.connect(two.address)
        back, target = one.accept(), one.empty(NBYTES, "uint8")
        full = registered(peer)
        for seed in range(3):
            until(lambda: other.notify(1, 1).wait() or asleep(peer), "it sleeps")
            for end in (peer, back):
                rails = end.stats()["rails"]
                assert [rail["asleep"] for rail in rails] == [True, True]
                assert [rail["nbytes_registered"] for rail in rails] == [0, 0]
                assert [rail["sleeps"] for rail in rails] == [seed + 1] * 2
            peer.write(hub.register(filled(seed)), target.remote, notify=(2, 1)).wait()
            assert one.wait_notify(2) == 1
            assert (np.asarray(target) == filled(seed)).all()
            assert registered(peer) == full
            assert all(rail["serves"] for rail in peer.stats()["rails"])
        assert min(rail["bytes_out"] for rail in peer.stats()["rails"]) > 0


def test_p2p_needs_no_queue_pair(near):
    with ExitStack() as stack:
        hub = stack.enter_context(zh.Endpoint("soft0", timeout=10, max_awake_peers=1))
        at = House(hub, [stack.enter_context(near(serve, endpoint=hub)) for _ in range(GUESTS)])
        until(lambda: sum(asleep(room.peer) for room in at.rooms) == 2, "two sleep")
        for use in USES:
            for room in at.rooms:
                use(at, room)
        at.end()


def meets_all(world):
    """Collectives, and each rank's writes, each time after all but one of a rank's Peers have gone to sleep."""
    rank, size = world.rank, world.size
    segment = world.segment(8 * size, name="all", dtype="int64", notifications=size)
    parts, out = np.zeros((size, NBYTES), np.int64), np.zeros((size, NBYTES), np.int64)
    places = np.arange(size)
    sleeps = 0
    for number in range(3):
        parts[:] = (100 * number + 10 * rank + places)[:, None]
        world.all_to_all(out, parts)
        assert (out == (100 * number + 10 * places + rank)[:, None]).all()
        peers = world.endpoint.peers
        until(lambda peers=peers: sum(not asleep(peer) for peer in peers) <= 1, "they sleep")
        source = np.full(1, 1000 * number + rank)
        for other in places[places != rank].tolist():
            segment.write_notify(other, source, 8 * rank, 8, slot=rank, value=number + 1)
        segment.wait()
        for other in places[places != rank].tolist():
            assert segment.notify_waitsome(other, 1) == other
            assert segment.notify_reset(other) == number + 1
            assert segment.local[other] == 1000 * number + other
        world.barrier()
        sleeps = sum(peer.stats()["sleeps"] for peer in world.endpoint.peers)
    return sleeps


def test_a_world_in_which_one_peer_of_each_rank_may_be_awake(job):
    assert min(job(meets_all, 4, max_awake_peers=1)) >= 4  # of each rank 2 of 3, more than once

"""Guarantee 3, second half: a peer that dies or hangs becomes PeerLost everywhere within 5 s."""

import signal
import time

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, block
from support.attempt import LOST_WITHIN, Attempt, within
from support.keeper import keep
from support.link import until
from support.operations import LATER, OPERATIONS, Stage, served_by_itself


def check_all_lost_at_once(at):
    """Every later operation says PeerLost, and says it without waiting again."""
    assert not at.peer.alive
    for name in LATER:
        with pytest.raises(zh.PeerLost), within(1.0):
            OPERATIONS[name](at)


def check_survivor(process, ep):
    """The endpoint that lost a peer goes on working with a new one."""
    with process(keep, endpoint=ep) as s:
        s.check()


# One of each sort; test_a_peer_that_hangs_is_lost_for_every_operation has all of them.
ALONE = ["write", "read", "fetch_add", "send", "recv", "wait_notify", "lookup", "await"]


@pytest.mark.parametrize("name", ALONE)
def test_kill_9_in_the_middle(process, name):
    with process(keep, timeout=30.0) as s:
        at = Stage(s)
        s.signal(signal.SIGSTOP)  # so that the operation cannot have ended before the kill
        pending = Attempt(OPERATIONS[name], at)
        if served_by_itself(process, name):
            pending.value()
            pending = Attempt(OPERATIONS["wait_notify"], at)
        with pytest.raises(AssertionError, match="still blocked"):
            pending.failure(zh.PeerLost, timeout=0.05)
        s.signal(signal.SIGKILL)
        killed = time.monotonic()
        error = pending.failure(zh.PeerLost, timeout=LOST_WITHIN)
        assert pending.ended_at - killed < LOST_WITHIN
        assert len(str(error)) > 20
        until(lambda: not at.peer.alive, "the dead peer is not alive", LOST_WITHIN)
        check_all_lost_at_once(at)


def ending(transfer):
    try:
        transfer.wait()
    except zh.PeerLost:
        return "lost"
    return "done"


def test_the_survivor_works_with_a_new_peer(process):
    with process(keep) as s:
        at = Stage(s)
        transfers = [s.peer.write(at.big, at.far) for _ in range(4)]
        s.signal(signal.SIGKILL)
        if process.p2p:
            with within(LOST_WITHIN):
                endings = [ending(transfer) for transfer in transfers]
            assert endings == sorted(endings), "one completed behind one that failed"
            until(lambda: not s.peer.alive, "the dead peer is not alive", LOST_WITHIN)
        else:
            with pytest.raises(zh.PeerLost), within(LOST_WITHIN):
                transfers[-1].wait()
        check_survivor(process, s.ep)
        check_all_lost_at_once(at)


def test_kill_9_of_an_idle_peer_is_noticed(process):
    with process(keep) as s:
        at = Stage(s)
        s.signal(signal.SIGKILL)
        until(lambda: not s.peer.alive, "the dead peer is not alive", LOST_WITHIN)
        check_all_lost_at_once(at)
        assert s.peer not in s.ep.peers or not s.peer.alive


@pytest.mark.parametrize("name", ["write", "read", "write_many", "read_many"])
def test_kill_9_while_bytes_flow(process, name):
    """Not stopped first: the connection breaks at a random place of the stream."""

    def go_on(at):
        while True:
            OPERATIONS[name](at)
            at.rounds += 1

    with process(keep) as s:
        at = Stage(s)
        at.rounds = 0
        flowing = Attempt(go_on, at)
        until(lambda: at.rounds >= 3, "three rounds done")
        s.signal(signal.SIGKILL)
        killed = time.monotonic()
        error = flowing.failure(zh.PeerLost, timeout=LOST_WITHIN)
        assert flowing.ended_at - killed < LOST_WITHIN
        assert error.effect in ("nothing", "some", "all")
        check_survivor(process, s.ep)


def moves_for_ever(ep, peer, link, verb, nbytes):
    """Writes ones and twos by turns; or reads."""
    far = link.recv()
    rows, _ = array(ep, "numpy", np.array([[1], [2]], np.uint8).repeat(nbytes, axis=1))
    count = 0
    while True:
        row = rows[count % 2]
        (peer.write(row, far) if verb == "write" else peer.read(far, row)).wait()
        count += 1
        if count == 3:
            link.send("flowing")


@pytest.mark.parametrize("kind", ["numpy", "empty"])
@pytest.mark.parametrize("verb", ["write", "read"])
def test_kill_9_of_who_moves_the_bytes(process, verb, kind):
    """The other way round: what it wrote to and read from is whole, and is soon its owner's alone."""
    nbytes = 4 << 20
    with process(moves_for_ever, verb, nbytes, timeout=30.0) as s:
        room = block(s.ep, kind, nbytes, 5)
        if verb == "read":
            room.bytes[:] = 3
        s.link.send(room.memory.remote)
        assert s.link.recv() == "flowing"
        s.signal(signal.SIGKILL)
        until(lambda: not s.peer.alive, "the dead peer is not alive", LOST_WITHIN)
        assert set(np.unique(room.bytes)) <= ({1, 2} if verb == "write" else {3})
        room.check_guards()
        with within(LOST_WITHIN):
            room.memory.close()
        check_survivor(process, s.ep)


def test_kill_9_while_connecting(process, open_endpoint):
    ep = open_endpoint(timeout=30.0)
    with process(keep, connected=False) as s:
        s.signal(signal.SIGSTOP)
        connecting = Attempt(ep.connect, s.address)
        with pytest.raises(AssertionError, match="still blocked"):
            connecting.failure(zh.PeerLost, timeout=0.1)
        s.signal(signal.SIGKILL)
        connecting.failure(zh.PeerLost, timeout=LOST_WITHIN)
    check_survivor(process, ep)


def test_a_peer_that_hangs_is_lost_for_every_operation(process):
    """SIGSTOP: no connection breaks, only the silence tells."""
    with process(keep, timeout=30.0) as s:
        at = Stage(s)
        stopped = time.monotonic()
        s.signal(signal.SIGSTOP)
        needing = [name for name in OPERATIONS if not served_by_itself(process, name)]
        pending = {name: Attempt(OPERATIONS[name], at) for name in needing}
        for attempt in pending.values():
            attempt.failure(zh.PeerLost, timeout=2 * LOST_WITHIN)
        late = {name: a.ended_at - stopped for name, a in pending.items()}
        assert max(late.values()) < LOST_WITHIN, late
        check_all_lost_at_once(at)
        check_survivor(process, s.ep)


NBYTES = 4000  # of a message that travels eagerly
STALL = 2.0  # seconds
WAITING = 64 << 20  # bytes of messages without a recv that a peer may have at the receiver


def send_until_it_stalls(ep, peer, link):
    """Numbered messages until the receiver takes no more: then send holds the caller up."""
    values = np.zeros(NBYTES // 4, np.uint32)
    memory = ep.register(values)
    count = took = 0
    while took < 0.9 * STALL or count * NBYTES < 0.9 * WAITING:
        begin = time.monotonic()
        peer.send(memory, tag=1)
        took = time.monotonic() - begin
        count += 1
        values[:] = count
    link.send(count)
    link.recv(60)


def test_what_arrived_before_the_loss_is_still_received(process):
    """More messages than the receiver holds without a recv; all it has are good, then no more."""
    with process(send_until_it_stalls, timeout=STALL) as s:
        sent = s.link.recv(40)
        s.signal(signal.SIGKILL)
        until(lambda: not s.peer.alive, "the dead peer is not alive", LOST_WITHIN)
        arrived = s.peer.stats()["messages_in"]
        assert 0.9 * WAITING < arrived * NBYTES < 1.1 * WAITING
        assert arrived < sent
        sink = np.zeros(NBYTES // 4, np.uint32)
        memory = s.ep.register(sink)
        for number in range(arrived):
            assert s.peer.recv(memory, tag=1).wait() == NBYTES
            assert sink[0] == sink[-1] == number
        with pytest.raises(zh.PeerLost), within(1.0):
            s.peer.recv(memory, tag=1).wait()


def see_loss(ep, peer, link):
    waiting = peer.recv(ep.empty(8))
    link.send("waiting")
    with pytest.raises(zh.PeerLost):
        waiting.wait(15)
    link.send("lost")


def test_a_peer_that_was_given_up_learns_of_it(process):
    """Both sides agree: after the pause the stopped one learns it, and may connect anew."""
    with process(see_loss, deadline=20) as s:
        assert s.link.recv() == "waiting"
        s.signal(signal.SIGSTOP)
        until(lambda: not s.peer.alive, "the silent peer is not alive", LOST_WITHIN)
        s.signal(signal.SIGCONT)
        assert s.link.recv(LOST_WITHIN) == "lost"


def test_a_short_pause_of_the_peer_is_survived(process):
    """A peer that is merely slow (a debugger, a busy machine) is not given up at once."""
    with process(keep) as s:
        at = Stage(s)
        s.signal(signal.SIGSTOP)
        writing = Attempt(OPERATIONS["write"], at)
        asking = Attempt(s.keeper.peer)  # only the process itself can answer
        asking.stays_pending(1.0)
        s.signal(signal.SIGCONT)
        writing.value()
        assert asking.value()[0]
        assert s.peer.alive


def test_two_peers_one_killed_the_other_goes_on(process):
    with process(keep) as healthy, process(keep, endpoint=healthy.ep) as dying:
        memory, view = array(healthy.ep, "numpy", np.zeros(100_000, np.uint32))
        target = healthy.keeper.array("numpy", np.zeros(100_000, np.uint32))
        lost = dying.peer.recv(healthy.ep.empty(8))
        dying.signal(signal.SIGKILL)
        for value in range(1, 30):
            view[:] = value
            healthy.peer.write(memory, target.remote).wait()
        assert (target.show() == 29).all()
        with pytest.raises(zh.PeerLost), within(LOST_WITHIN):
            lost.wait()
        assert healthy.peer.alive

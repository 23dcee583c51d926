"""A rank that dies ends the collectives of all that depend on it, at first or at second hand, and they say who it was."""

import signal

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.ranks import close, results, worlds
from zerohop.collectives.lines import EAGER

SPREAD = 2.0  # seconds beside those in which a loss is seen: from rank to rank


def call(world, kind, nbytes):
    """From the last rank, or to it; every rank needs it."""
    size, last = world.size, world.size - 1
    array, out = np.zeros(nbytes, np.uint8), np.zeros((size, nbytes), np.uint8)
    calls = {
        "broadcast": lambda: world.broadcast(array, last),
        "scatter": lambda: world.scatter(array, None, last),
        "all_gather": lambda: world.all_gather(out, array),
        "all_to_all": lambda: world.all_to_all(out, out.copy()),
        "all_reduce": lambda: world.all_reduce(array),
        "reduce_scatter": lambda: world.reduce_scatter(array, out),
        "send_recv": lambda: world.send_recv(
            to=(world.rank - 1) % size, array=array, from_=(world.rank + 1) % size, out=out[0]
        ),
    }
    calls[kind]()


KINDS = ("broadcast", "scatter", "all_gather", "all_to_all", "all_reduce", "reduce_scatter")


@pytest.mark.parametrize(("size", "nbytes"), [(2, 100), (4, 2 * EAGER)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_dies_ends_it_everywhere(rank_threads, victim, kind, size, nbytes):
    """Others that hang or die, in the middle of their part: test_collectives_mid_call.py."""
    dying = victim(size)
    made = worlds(rank_threads, range(size - 1), size)
    results([Attempt(world.barrier) for world in made])
    pending = [Attempt(call, world, kind, nbytes) for world in made]
    for attempt in pending:
        attempt.stays_pending(0.05)
    since = dying.signal(signal.SIGKILL)
    for attempt in pending:
        error = attempt.failure(zh.PeerLost, LOST_WITHIN + SPREAD + 1)
        assert attempt.ended_at - since < LOST_WITHIN + SPREAD
        assert f"{kind} of 'world', call 1: rank {size - 1}" in str(error)
    for world in made:
        with pytest.raises(zh.PeerLost, match=f"ended: rank {size - 1}"), within(1):
            world.all_gather(np.zeros(size), np.zeros(1))
    close(made)


def test_the_loss_goes_round(rank_threads, victim):
    """Around a ring each waits for the one before it; only one of them sees the loss itself."""
    size = 7
    dying = victim(size)
    made = worlds(rank_threads, range(size - 1), size)
    results([Attempt(world.barrier) for world in made])
    pending = [Attempt(call, world, "all_gather", 2 * EAGER) for world in made[:-1]]
    for attempt in pending:
        attempt.stays_pending(0.05)
    killed = dying.signal(signal.SIGKILL)
    for attempt in pending:
        error = attempt.failure(zh.PeerLost, LOST_WITHIN + SPREAD)
        assert attempt.ended_at - killed < LOST_WITHIN + SPREAD
        assert f"all_gather of 'world', call 1: rank {size - 1}" in str(error)
    with pytest.raises(zh.PeerLost, match=f"rank {size - 1}"), within(LOST_WITHIN):  # it comes late
        call(made[-1], "all_gather", 2 * EAGER)
    close(made)


def test_who_comes_late_asks(rank_threads, victim):
    """Nobody who has given up knows of it yet."""
    dying = victim(3)
    first, second = worlds(rank_threads, range(2), 3)
    results([Attempt(world.barrier) for world in (first, second)])
    dying.signal(signal.SIGKILL)
    with pytest.raises(zh.PeerLost, match="scatter of 'world', call 1: rank 2"):
        first.scatter(np.zeros(3), None, 2)
    words = "broadcast of 'world', call 1: rank 2 .*reported by rank 0"
    with pytest.raises(zh.PeerLost, match=words), within(2):
        second.broadcast(np.zeros(3), 0)
    close([first, second])


def test_who_needs_nothing_of_a_lost_rank_goes_on(rank_threads, victim):
    dying = victim(3)
    first, second = worlds(rank_threads, range(2), 3)
    results([Attempt(world.barrier) for world in (first, second)])
    dying.signal(signal.SIGKILL)
    for _ in range(3):
        out = np.zeros(3)
        coming = Attempt(lambda out=out: second.send_recv(from_=0, out=out))
        first.send_recv(to=1, array=np.ones(3))
        coming.value()
        assert out.tolist() == [1, 1, 1]
    close([first, second])


def test_what_a_rank_sent_before_it_left_arrives(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2)
    out = np.zeros((2, 3))
    meeting = Attempt(second.broadcast, np.zeros(1))
    first.broadcast(np.ones(1))
    meeting.value()
    for number in range(2):
        first.broadcast(np.full(3, number + 1.0))
    first.close()
    for number in range(2):
        second.broadcast(out[number])
    assert out[:, 0].tolist() == [1, 2]
    with pytest.raises(zh.PeerLost, match="broadcast of 'world', call 4: rank 0"), within(5):
        second.broadcast(out[0])
    second.close()

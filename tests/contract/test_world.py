"""World: ranks that find each other when they need each other, the barrier, and who is left."""

import signal
from functools import partial

import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.link import until
from support.patience import SLOW
from support.ranks import close, results, worlds

ROUNDS = int(100 / SLOW)


def come_and_look(world, come):
    for number in range(1, ROUNDS + 1):
        come[world.rank] = number
        world.barrier()
        assert min(come) >= number, f"round {number}: {come}"
        assert max(come) <= number + 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9])  # to 8 in one step
def test_nobody_leaves_the_barrier_before_all_have_come(rank_threads, size):
    rank_threads(come_and_look, size, [0] * size, deadline=50.0)


def test_a_barrier_that_timed_out_is_waited_on(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2)
    for timeout in (0, 0.2):
        with pytest.raises(zh.TransferTimeout, match="rank 1 has not come"), within(3, timeout):
            first.barrier(timeout)
    late = Attempt(second.barrier)
    first.barrier()
    late.value()
    later = Attempt(first.barrier)
    later.stays_pending(0.1)
    second.barrier()
    later.value()
    close([first, second])


def test_who_waits_in_the_barrier_in_vain_knows_who_has_not_come(rank_threads):
    *here, absent = made = worlds(rank_threads, range(4), 4)
    waiting = [Attempt(partial(world.barrier, timeout=0.5)) for world in here]
    for attempt in waiting:
        assert "rank 3 has not come in time" in str(attempt.failure(zh.TransferTimeout, 5))
    again = [Attempt(world.barrier) for world in here]
    absent.barrier()
    results(again)
    close(made)


def test_one_thread_of_a_rank_is_in_the_barrier(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2)
    waiting = Attempt(first.barrier)
    waiting.stays_pending(0.1)
    with pytest.raises(RuntimeError, match="another thread of this rank"):
        first.barrier()
    second.barrier()
    waiting.value()
    close([first, second])


def test_a_large_world_costs_nothing_until_it_is_used(rank_threads):
    with within(2.0):
        [world] = worlds(rank_threads, [500], 1000)
        segment = world.segment(1 << 10)
    assert world.endpoint.peers == []
    assert world.state() == ["healthy"] * 1000
    assert len(list(rank_threads.directory.iterdir())) == 2  # an entry, and a lock file for all
    assert segment.nbytes == 1 << 10
    world.close()


def test_ranks_are_connected_when_they_are_needed(rank_threads):
    made = worlds(rank_threads, range(4), 4)
    assert made[1].peer(2) is made[1].peer(2)
    made[1].peer(2).notify(5, 7).wait()  # a slot of the program's own
    assert made[2].endpoint.wait_notify(5) == 7
    until(lambda: made[2].endpoint.peers, "the Peer that rank 1 has made")
    assert [len(world.endpoint.peers) for world in made] == [0, 1, 1, 0]
    made[2].peer(1).notify(6, 8).wait()
    assert made[1].endpoint.wait_notify(6) == 8
    assert [len(world.endpoint.peers) for world in made] == [0, 1, 1, 0]
    assert "rank 2 of world" in repr(made[1].peer(2))
    close(made)


def test_who_has_not_started_is_waited_for(rank_threads):
    [first] = worlds(rank_threads, [0], 2)
    words = "rank 1.*that rank has not made its World"
    with pytest.raises(zh.TransferTimeout, match=words), within(2, 0.2):
        first.peer(1, timeout=0.2)
    waiting = Attempt(first.peer, 1)
    waiting.stays_pending(0.05)
    [second] = worlds(rank_threads, [1], 2)
    assert waiting.value().alive
    close([first, second])


def test_worlds_of_one_store_do_not_meet(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2, name="one")
    third, fourth = worlds(rank_threads, [0, 1], 2, name="other")
    barrier = Attempt(first.barrier)
    barrier.stays_pending(0.05)
    both = [Attempt(third.barrier), Attempt(fourth.barrier)]
    results(both)
    second.barrier()
    barrier.value()
    close([first, second, third, fourth])


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_learn_in_the_barrier_that_a_rank_was_killed(rank_threads, victim, size):
    dying = victim(size)
    made = worlds(rank_threads, range(size - 1), size)
    results([Attempt(world.barrier) for world in made])
    pending = [Attempt(world.barrier) for world in made]
    for attempt in pending:
        attempt.stays_pending(0.02)
    killed = dying.signal(signal.SIGKILL)
    for attempt in pending:
        error = attempt.failure(zh.PeerLost, LOST_WITHIN)
        assert attempt.ended_at - killed < LOST_WITHIN
        assert f"rank {size - 1} is lost" in str(error)
    why = made[0].peer(size - 1).why_lost
    assert why
    for world in made:
        with pytest.raises(zh.PeerLost) as caught, within(1):
            world.barrier()
        assert world.rank or f"rank {size - 1} is lost ({why})" in str(caught.value)
    close(made)


def test_a_rank_that_hangs_is_lost(rank_threads, victim):
    dying = victim(2)
    [world] = worlds(rank_threads, [0], 2)
    world.barrier()
    pending = Attempt(world.barrier)
    stopped = dying.signal(signal.SIGSTOP)
    pending.failure(zh.PeerLost, LOST_WITHIN + 1)
    assert pending.ended_at - stopped < LOST_WITHIN
    assert world.state() == ["healthy", "corrupt"]
    world.close()


def test_a_rank_that_was_gone_before_it_was_needed_is_lost(rank_threads):
    [gone, other] = worlds(rank_threads, [0, 1], 3)
    gone.close()
    for _ in range(2):
        with pytest.raises(zh.PeerLost, match="rank 0"), within(LOST_WITHIN):
            other.peer(0)
    assert other.state() == ["corrupt", "healthy", "healthy"]
    other.close()


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "words"),
    [
        ((2, 2), {}, ValueError, "ranks go from 0"),
        ((-1, 2), {}, ValueError, "ranks go from 0"),
        ((0, 0), {}, ValueError, "size must be at least 1"),
        ((0.5, 2), {}, TypeError, "integer"),
        (("0", 2), {}, TypeError, "rank must be an integer, not '0'"),
        ((0, None), {}, TypeError, "size must be an integer, not None"),
        ((0, 1), {"local_rank": 0.0}, TypeError, "local_rank must be an integer"),
        ((0, 1), {"name": ""}, ValueError, "printable"),
        ((0, 1), {"colour": 3}, TypeError, "no keyword 'colour'"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, options, kind, words):
    with pytest.raises(kind, match=words):
        zh.World(tmp_path, *arguments, **options)


def test_a_directory_serves_one_run_after_the_other(tmp_path):
    for late in (0, 1):
        worlds = {}
        for rank in (1 - late, late):
            worlds[rank] = zh.World(tmp_path, rank, 2, device="soft0", timeout=10.0)
            if rank == 1 - late:  # it looks for the other one, who is not there yet
                with pytest.raises(zh.TransferTimeout):
                    worlds[rank].peer(late, 0.2)
        assert worlds[0].peer(1).alive
        for world in worlds.values():
            world.close()
        with pytest.raises(zh.Error, match="the World 'world' is closed"):
            worlds[0].peer(0)
        with pytest.raises(zh.Error, match="the World 'world' is closed"):
            worlds[0].segment(8)


@pytest.mark.parametrize("pause", [0, 0.001, 0.01, 0.05])
def test_a_look_up_of_a_rank_raises_when_the_world_is_closed(rank_threads, pause):
    [first] = worlds(rank_threads, [0], 3)
    waiting = [Attempt(first.peer, rank) for rank in (1, 2) for _ in range(3)]
    waiting[0].stays_pending(pause)
    first.close()
    for attempt in waiting:
        assert str(attempt.failure(zh.Error, 2)) == "the World 'world' is closed"

"""Worlds of some ranks, made by split(): they share connections, and neither order nor failures."""

import os
import signal
import threading

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.members import ask
from support.members import member as start
from support.ranks import close, results, worlds
from support.spawned import Worker

GROUPS = 40


def gathered(world: zh.World, value: int) -> list[int]:
    out = np.zeros(world.size, np.int64)
    world.all_gather(out, np.full(1, value))
    return out.tolist()


def in_splits(world: zh.World) -> None:
    """Each has its own ranks, and its own order of calls."""
    own, ranks = world.rank, [3, 1, 0]
    pair = world.split([own & ~1, own | 1])
    assert gathered(pair, own) == [own & ~1, own | 1]
    if own in ranks:
        with world.split(ranks, name="three") as three:
            assert (three.rank, three.size, three.name) == (ranks.index(own), 3, "three")
            assert gathered(three, own) == ranks
            total = np.full(100_000, own + 1.0)
            three.all_reduce(total)
            assert set(total) == {7.0}
            if own != 1:
                with three.split([2, 0]) as inner:
                    assert gathered(inner, own) == [0, 3]
                    inner.barrier()
            three.barrier()
    assert gathered(world, own) == [0, 1, 2, 3]
    pair.barrier()
    assert pair.state() == ["healthy"] * 2
    assert pair.endpoint is world.endpoint
    pair.close()


def test_ranks_of_several_worlds(job):
    job(in_splits, 4)


def test_a_dead_rank_is_noticed_while_another_is_late(rank_threads):
    """Each waits first for rank 1, which never calls split()."""
    members = [start(rank_threads, rank, 3) for rank in range(3)]
    try:
        assert ask(members, "meet") == ["met"] * 3
        for name, ranks in (("up", [0, 1, 2]), ("down", [0, 2, 1])):
            ask([members[0], members[2]], "split", name, ranks)
        members[2].signal(signal.SIGKILL)
        for call in ("meet_in", "gather_in"):
            for name in ("up", "down"):
                with within(LOST_WITHIN):
                    (answer,) = ask(members[:1], call, name)
                assert isinstance(answer, zh.PeerLost)
                assert "is lost" in str(answer) or "have ended" in str(answer)
    finally:
        for each in members:
            each.discard()


def names(world: zh.World) -> None:
    """Equal names of different ranks, the World's own, and one that looks like a second one."""
    own, everyone = world.rank, range(world.size)
    made = [
        world.split(ranks, name=name)
        for name, ranks in (("pair", [0, 1]), ("pair", [0, 2]), ("pair", [1, 2]))
        if own in ranks
    ]
    for each in made:
        with within(LOST_WITHIN):
            assert sorted(gathered(each, own)) == gathered(each, own)
            assert own in gathered(each, own)
        each.barrier()
    for name in (world.name, "a", "a", "a (2)"):
        made.append(world.split(everyone, name=name))
    for number, each in enumerate(made[2:]):
        assert gathered(each, number) == [number] * world.size
    for each in made:
        each.close()
    world.barrier()
    world.split(everyone).close()  # frees what all have closed
    assert gathered(world, own) == list(everyone)


def test_equal_names(job):
    job(names, 3)


def left() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def many(world: zh.World) -> tuple[tuple[int, int], tuple[int, int]]:
    """What 40 Worlds of three ranks take, and what is left of them."""
    ranks = [0, 1, 2]
    gathered(world, 0)
    before, made = left(), []
    if world.rank in ranks:
        made = [world.split(ranks) for _ in range(GROUPS)]
        for number, each in enumerate(made):
            assert gathered(each, number) == [number] * 3
            each.barrier()
    world.barrier()
    most = left()
    for each in made:
        each.close()
    made.clear()
    world.barrier()
    if world.rank in ranks:
        each = world.split(ranks)  # frees what all have closed
        each.close()
        del each
    after = left()
    return tuple(np.subtract(most, before)), tuple(np.subtract(after, before))


def test_what_many_worlds_take(rank_processes):
    for (descriptors, threads), (descriptors_left, threads_left) in rank_processes(many, 4):
        assert descriptors <= 3 * GROUPS
        assert descriptors_left <= 3
        assert threads <= 0
        assert threads_left <= 0


def again_and_again(world: zh.World) -> None:
    """More Worlds than there are slots, one after the other."""
    few = world.segment(8, notifications=48_500)
    for number in range(30):
        with world.split(range(world.size)) as split:
            assert gathered(split, number) == [number] * world.size
            split.barrier()
        world.barrier()
    made = []
    with pytest.raises(ValueError, match=r"notification slots left.*split\(\).*close one"):
        made.extend(world.split(range(world.size)) for _ in range(30))
    few.close()


def test_slots_serve_one_world_after_the_other(job):
    job(again_and_again, 3)


def twice(world: zh.World) -> None:
    gathered(world, 1)
    gathered(world, 2)


def apart(world: zh.World) -> None:
    """What ends the calls of one World ends none in another."""
    everyone = range(world.size)
    late, different, closed, fine = (world.split(everyone) for _ in range(4))
    for each in (late, different, closed, fine):
        assert gathered(each, 1) == [1] * world.size
    world.barrier()
    if world.rank == 0:
        with pytest.raises(zh.TransferTimeout, match="not made the matching call"):
            late.all_gather(np.zeros(world.size, np.int64), np.ones(1, np.int64), timeout=0.5)
    world.barrier()
    with pytest.raises(zh.Error):
        twice(late)  # rank 0 has sent its part of the first
    array = np.zeros(world.rank + 1)
    with pytest.raises(ValueError, match="has called"), within(LOST_WITHIN):
        different.all_reduce(array)
    if world.rank == 0:
        closed.close()
    else:
        with pytest.raises(zh.PeerLost, match=r"rank 0 is lost.*it has left"), within(LOST_WITHIN):
            closed.broadcast(array, 0)
    for each in (world, fine):
        assert gathered(each, each.rank) == list(everyone)
    world.barrier()


def test_a_failure_ends_one_world(job):
    job(apart, 3)


def test_why_a_rank_left(rank_threads):
    made = worlds(rank_threads, range(2), 2)

    def leave() -> None:
        with made[0].split([0, 1]) as split:
            gathered(split, 1)
            raise KeyError("no more")

    def stay() -> None:
        with made[1].split([0, 1]) as split:
            gathered(split, 1)
            split.barrier()

    attempts = [Attempt(leave), Attempt(stay)]
    with pytest.raises(KeyError):
        attempts[0].value(20)
    with pytest.raises(zh.PeerLost, match=r"rank 0 is lost.*it left: KeyError: 'no more'"):
        attempts[1].value(LOST_WITHIN)
    results([Attempt(world.barrier) for world in made])
    close(made)


def test_a_call_in_the_background_ends_with_its_world(rank_threads):
    made = worlds(rank_threads, range(2), 2)
    splits = [world.split([0, 1]) for world in made]
    results([Attempt(gathered, split, 1) for split in splits])
    call = splits[0].broadcast(np.zeros(10), 1, wait=False)
    with within(LOST_WITHIN), pytest.warns(RuntimeWarning, match="have ended: broadcast of"):
        splits[0].close()
    with pytest.raises(zh.Error, match="is closed"):
        call.wait(0)
    with pytest.raises(zh.Error, match="is closed"):
        splits[0].barrier()
    assert [thread for thread in threading.enumerate() if "collectives" in thread.name] == []
    close(made)


def test_mistakes(rank_threads):
    (world,) = worlds(rank_threads, [1], 3)
    for ranks, message in (
        ([0, 2], "rank 1 of 'world' is not among the ranks"),
        ([0, 1, 1], "ranks must be different ones"),
        ([1, 3], "from 0 to 2"),
    ):
        with pytest.raises(ValueError, match=message):
            world.split(ranks)
    with pytest.raises(TypeError):
        world.split(["1"])
    with pytest.raises(ValueError, match="printable"):
        world.split([1], name="\n")
    alone = world.split([1])
    assert gathered(alone, 7) == [7]
    alone.barrier()
    for rank in (-1, 1):
        with pytest.raises(ValueError, match="from 0 to 0"):
            alone.split([0, rank])
    with pytest.raises(ValueError, match="make them in the World that was split"):
        alone.segment(8)
    with pytest.raises(zh.TransferTimeout, match=r"rank 1: "), within(5):
        world.split([1, 0]).peer(1, timeout=0.2)
    alone.close()
    assert not world.closed
    world.close()
    with pytest.raises(zh.Error, match="is closed"):
        world.split([1])


def assert_lost(members: list[Worker], split: str, message: str) -> None:
    for answer in ask(members, "meet_in", split):
        assert isinstance(answer, zh.PeerLost)
        assert message in str(answer)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_rank_is_lost_where_it_was(rank_threads, number):
    members = [start(rank_threads, rank, 4) for rank in range(4)]
    try:
        ask(members, "split", "all", [0, 1, 2, 3])
        assert ask(members, "meet_in", "all") == ["met"] * 4
        ask(members[:3], "split", "low", [0, 1, 2])
        ask(members[2:], "split", "high", [2, 3])
        assert ask(members[:3], "meet_in", "low") == ["met"] * 3
        assert ask(members[2:], "meet_in", "high") == ["met"] * 2
        members[3].signal(number)
        with within(LOST_WITHIN + 1):
            assert_lost(members[2:3], "high", "rank 1 is lost")
            assert_lost(members[:3], "all", "rank 3")
        assert ask(members[:3], "meet_in", "low") == ["met"] * 3
        assert ask(members[:3], "shrink_in", "all") == [(rank, 3) for rank in range(3)]
        assert ask(members[:3], "meet_in", "all") == ["met"] * 3
    finally:
        for each in members:
            each.discard()

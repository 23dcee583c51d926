"""Ranks that call different things: all of them learn of it in time, and who called what, whoever finds it."""

import re
from contextlib import suppress

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.ranks import close, results, worlds
from zerohop._world.ending import Cause
from zerohop._world.failure_reports import MISMATCH, OTHER
from zerohop.collectives.lines import EAGER


def broadcast(root=0, nbytes=20, dtype="uint8"):
    return lambda world: world.broadcast(np.zeros(nbytes // np.dtype(dtype).itemsize, dtype), root)


def all_gather(nbytes=20):
    return lambda world: world.all_gather(
        np.zeros((world.size, nbytes), np.uint8), np.zeros(nbytes, np.uint8)
    )


def gather(root=0, nbytes=20):
    def call(world):
        parts = np.zeros((world.size, nbytes), np.uint8) if world.rank == root else None
        world.gather(parts, np.zeros(nbytes, np.uint8), root)

    return call


def scatter(root=0, nbytes=20):
    def call(world):
        parts = np.zeros((world.size, nbytes), np.uint8) if world.rank == root else None
        world.scatter(np.zeros(nbytes, np.uint8), parts, root)

    return call


def all_to_all(nbytes=20):
    return lambda world: world.all_to_all(*np.zeros((2, world.size, nbytes), np.uint8))


def barrier(world):
    world.barrier()


def own_root(world):
    broadcast(world.rank)(world)


LARGE = 2 * EAGER

# What the last rank calls, what all others do, and what is said of it. Behind that all call barrier().
CASES = {
    "kind": (all_gather(), broadcast(), r"all_gather \(call 1\)", r"broadcast \(call 1, root 0\)"),
    "large kind": (all_gather(LARGE), broadcast(0, LARGE), "all_gather", "broadcast"),
    "root": (broadcast(1), broadcast(0), r"root 1\)", r"root 0\)"),
    "large root": (broadcast(1, LARGE), broadcast(0, LARGE), r"root 1\)", r"root 0\)"),
    "gather's root": (gather(1), gather(0), r"root 1\)", r"root 0\)"),
    "scatter's root": (scatter(1), scatter(0), r"root 1\)", r"root 0\)"),
    "own root": (own_root, own_root, r"root \d\)", r"root \d\)"),
    "dtype": (broadcast(dtype="int32"), broadcast(dtype="float32"), "of int32", "of float32"),
    "size": (broadcast(nbytes=24), broadcast(nbytes=20), "24 bytes", "20 bytes"),
    "small, large": (broadcast(0, LARGE), broadcast(), f"{LARGE} bytes", "20 bytes"),
    "large, small": (broadcast(), broadcast(0, LARGE), "20 bytes", f"{LARGE} bytes"),
    "gathered size": (all_gather(24), all_gather(20), "(48|96) bytes", "(40|80) bytes"),
    "exchange": (all_to_all(), gather(), r"all_to_all \(call 1\)", r"gather \(call 1, root 0\)"),
    "barrier": (barrier, broadcast(), r"barrier \(number 1\)", r"broadcast \(call 1, root 0\)"),
    "large, barrier": (barrier, broadcast(0, LARGE), "barrier", "broadcast"),
    "barrier, gather": (gather(), barrier, r"gather \(call 1", r"barrier \(number 1\)"),
    "barrier, large": (broadcast(0, LARGE), barrier, "broadcast", "barrier"),
}  # fmt: skip


def calls_of(world, first):
    """Who only sent something small learns of the mismatch later."""
    first(world)
    barrier(world)


def check(error, first, second):
    text = str(error)
    found = re.search(
        r"rank (\d) has called (.*), rank (\d) (.*): all ranks must make the same", text
    )
    assert found, text
    assert found[1] != found[3], text
    assert re.search(first, text), text
    assert re.search(second, text), text


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_all_ranks_learn_who_called_what(rank_threads, name, size):
    last, others, *words = CASES[name]
    made = worlds(rank_threads, range(size), size, timeout=30.0)
    firsts = [others] * (size - 1) + [last]
    calls = [Attempt(calls_of, *each) for each in zip(made, firsts, strict=True)]
    with within(LOST_WITHIN):
        errors = [call.failure(ValueError, LOST_WITHIN) for call in calls]
    for error in errors:
        check(error, *words)
    for world in made:
        for call in (broadcast(), barrier):
            with pytest.raises(zh.Error, match="Make a World with another name"), within(1):
                call(world)
    close(made)


def leave(world, first):
    """As a program that the exception ends."""
    with world:
        calls_of(world, first)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", ["root", "kind", "barrier", "barrier, large"])
def test_who_finds_it_tells_before_it_leaves(rank_threads, name, size):
    last, others, *words = CASES[name]
    made = worlds(rank_threads, range(size), size, timeout=30.0)
    results([Attempt(world.barrier) for world in made])
    firsts = [others] * (size - 1) + [last]
    calls = [Attempt(leave, *each) for each in zip(made, firsts, strict=True)]
    for call in calls:
        check(
            call.failure(ValueError, LOST_WITHIN),
            *(word.replace("number 1", "number 2") for word in words),
        )


def test_a_small_array_that_nobody_takes_is_found_in_the_barrier(rank_threads):
    made = worlds(rank_threads, range(3), 3, timeout=30.0)
    results([Attempt(all_gather(), world) for world in made])
    broadcast(0)(made[0])  # it returns: what is small is on its way
    calls = [Attempt(world.barrier) for world in made]
    for call in calls:
        check(
            call.failure(ValueError, LOST_WITHIN),
            r"broadcast \(call 2, root 0\) with 20",
            "barrier",
        )
    close(made)


@pytest.mark.parametrize("size", [2, 4])
def test_the_root_of_a_small_array_raises_in_its_next_call(rank_threads, size):
    """It has sent the array before the others find that they expect another size."""
    made = worlds(rank_threads, range(size), size, timeout=30.0)
    results([Attempt(all_gather(), world) for world in made])
    broadcast(nbytes=16)(made[0])
    words = r"broadcast \(call 2, root 0\) with 16 .*broadcast \(call 2, root 0\) with 20 "
    for world in made[1:]:
        with pytest.raises(ValueError, match=words), within(LOST_WITHIN):
            broadcast(nbytes=20)(world)
    with pytest.raises(ValueError, match=r"with 16 .*with 20 |with 20 .*with 16 "), within(1):
        broadcast(nbytes=16)(made[0])  # though it needs nothing of the others
    close(made)


def test_ranks_that_all_are_the_root_find_it_when_nothing_more_has_room(rank_threads):
    made = worlds(rank_threads, range(2), 2, timeout=30.0)
    results([Attempt(world.barrier) for world in made])

    def as_root(world):
        for _ in range(1000):
            world.broadcast(np.zeros(3), world.rank)

    calls = [Attempt(as_root, world) for world in made]
    for call in calls:
        check(call.failure(ValueError, LOST_WITHIN), "root 0", "root 1")
    close(made)


def test_a_barrier_counts_among_the_calls(rank_threads):
    made = worlds(rank_threads, range(3), 3, timeout=30.0)

    def in_order(world):
        for number in range(100):
            world.broadcast(np.zeros(3), number % 3, wait=number % 2 == 0)
            if number % 7 == 0:
                world.barrier()

    results([Attempt(in_order, world) for world in made])
    results([Attempt(world.barrier) for world in made])
    close(made)


def test_a_barrier_behind_a_timeout_is_no_mismatch(rank_threads):
    """Ranks whose collectives are over have not made the calls that others still made before it."""
    made = worlds(rank_threads, range(4), 4, timeout=30.0)
    results([Attempt(all_to_all(), world) for world in made])
    late = made.pop(1)

    def go_on(world):
        parts = np.zeros((4, 20), np.uint8) if world.rank == 2 else None
        with suppress(zh.Error):
            world.gather(parts, np.zeros(20, np.uint8), 2, timeout=0.3)
        with suppress(zh.Error):
            broadcast()(world)
        world.barrier(20)

    others = [Attempt(go_on, world) for world in made]
    others[1].stays_pending(1.5)  # time enough to look at each other's calls
    results([*others, Attempt(go_on, late)])
    close([*made, late])


def test_a_mismatch_behind_a_timeout_ends_the_barrier(rank_threads):
    """Also where that rank's collectives are over for another cause."""
    made = worlds(rank_threads, range(3), 3, timeout=30.0)
    results([Attempt(world.barrier) for world in made])
    endings = [world._barrier._ending for world in made]
    endings[0].declare(Cause(OTHER, "rank 0 has had enough"))
    waiting = Attempt(made[0].barrier)
    waiting.stays_pending(0.05)
    endings[1].declare(Cause(MISMATCH, "rank 1 has called this, rank 2 that"))
    assert "rank 2 that" in str(waiting.failure(ValueError, LOST_WITHIN))
    assert endings[0].cause_of(made[1].peer(0)).kind == MISMATCH
    with pytest.raises(ValueError, match="rank 2 that"):
        made[2].barrier()
    for world in made:
        with pytest.raises(zh.Error, match="Make a World with another name"), within(1):
            world.barrier()
    close(made)

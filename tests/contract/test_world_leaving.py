"""A rank that an exception ends says so, and those that come to miss it tell it in their errors."""

import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt
from support.forking import forking
from support.link import until
from support.patience import patient
from support.ranks import close, results, worlds
from zerohop._world.failure_reports import LEFT, FailureReports
from zerohop._world.notifications import Slots

SAID = r"\(it left: KeyError: 'what is missing'\)"


def fail(world, error):
    with world:
        raise error


def leave(world, error=None):
    """As a program whose exception ends its `with`."""
    error = error or KeyError("what is missing")
    with pytest.raises(type(error)):
        fail(world, error)


def barrier(world):
    world.barrier()


def broadcast(world):
    world.broadcast(np.zeros(3), world.size - 1)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("call", [barrier, broadcast])
def test_all_who_wait_learn_why(rank_threads, call, size):
    made = worlds(rank_threads, range(size), size, timeout=30.0)
    results([Attempt(world.barrier) for world in made])
    waiting = [Attempt(call, world) for world in made[:-1]]
    for attempt in waiting:
        attempt.stays_pending(0.05)
    leave(made[-1])
    for attempt in waiting:
        error = attempt.failure(zh.PeerLost, LOST_WITHIN)
        assert f"rank {size - 1} is lost (it left: KeyError: 'what is missing')" in str(error)
    close(made[:-1])


def test_who_comes_later_learns_why(rank_threads):
    """From the store: the two have never met."""
    first, second = worlds(rank_threads, [0, 1], 2)
    leave(second)
    for call in (lambda: first.peer(1), first.barrier):
        with pytest.raises(zh.PeerLost, match=SAID):
            call()
    first.close()


def test_who_left_because_of_another_is_not_the_first_that_was_lost(rank_threads):
    first, second, third = made = worlds(rank_threads, range(3), 3)
    results([Attempt(world.barrier) for world in made])
    third.close()
    leave(second)
    for rank in (1, 2):
        until(lambda rank=rank: not first.peer(rank).alive, f"rank {rank} is lost", LOST_WITHIN)
    with pytest.raises(zh.PeerLost, match="rank 2 is lost"):
        first.barrier()
    first.close()


def write_on(segment):
    end = time.monotonic() + LOST_WITHIN
    while time.monotonic() < end:
        segment.write(1, 0, 0, 8)
        segment.wait()


def test_users_of_a_segment_learn_why(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2)
    segments = [world.segment(8) for world in (first, second)]
    segments[0].write(1, 0, 0, 8).wait()
    leave(second)
    with pytest.raises(zh.PeerLost, match=rf"segment '0' of 'world', rank 1: .*{SAID}"):
        write_on(segments[0])
    first.close()


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("it has no words")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Mute(), "(it left: Mute)"),
        (ValueError("lone \ud800 surrogate"), "(it left: ValueError: lone ? surrogate)"),
        (ValueError("two\nlines\tof it"), "(it left: ValueError: two lines of it)"),
        (ValueError(), "(it left: ValueError)"),
        (ValueError("long " * 1000), "long long ...)"),
        (ValueError("\u00fc\u4e2d" * 200), "\u00fc\u4e2d"),
    ],
)
def test_it_is_said_in_one_line(rank_threads, error, words):
    first, second = worlds(rank_threads, [0, 1], 2)
    results([Attempt(world.barrier) for world in (first, second)])
    leave(second, error)
    assert second.endpoint.closed
    with pytest.raises(zh.PeerLost) as caught:
        first.barrier()
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert len(text) < 500
    first.close()


def test_who_leaves_without_a_fault_says_nothing(rank_threads):
    first, second, third = worlds(rank_threads, [0, 1, 2], 3)
    results([Attempt(world.barrier) for world in (first, second, third)])
    leave(second, SystemExit(0))
    third.close()
    with pytest.raises(zh.PeerLost) as caught:
        first.barrier()
    assert not re.search(r"\(it left: \w+(Error|Exit)", str(caught.value))
    first.close()


_UNCAUGHT = """
import sys
import time
import zerohop as zh

world = zh.World(sys.argv[1], 1, 2, device="soft0")
world.barrier()
raise KeyError("what is missing")
"""


def test_a_program_that_ends_without_closing_says_it(rank_threads):
    [world] = worlds(rank_threads, [0], 2)
    arguments = [sys.executable, "-c", _UNCAUGHT, str(rank_threads.directory)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as program:
        world.barrier()
        with pytest.raises(zh.PeerLost, match=SAID):
            world.barrier()
        _, errors = program.communicate(timeout=patient(20))
    assert errors.rstrip().endswith("KeyError: 'what is missing'")
    world.close()


def leave_in_child(world):
    """Forks; the child's exception ends its `with`."""
    with forking():
        child = os.fork()
    if child == 0:
        try:
            fail(world, KeyError("of the child"))
        finally:
            os._exit(0)
    until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, "the child has ended")


def test_a_child_does_not_speak_for_its_parent(rank_threads):
    first, second, late = worlds(rank_threads, [0, 1, 2], 3)
    results([Attempt(world.barrier) for world in (first, second, late)])
    leave_in_child(second)
    results([Attempt(world.barrier) for world in (first, second, late)])
    entry = (rank_threads.directory / "zerohop%2Fworld%2F1").read_bytes()
    assert b"of the child" not in entry
    close([first, second, late])


def test_who_shares_the_memory_is_reported(open_endpoint):
    a, b = open_endpoint(name="a"), open_endpoint(name="b")
    stranger = open_endpoint(name="rank 1 of job (or so it says)")
    for other in (b, stranger):
        a.connect(other.address)
        other.accept()
    bell = Slots.at_the_end(2).bell
    words = [FailureReports(ep, "job", rank, 2, bell) for rank, ep in enumerate((a, b))]
    words[0].send(LEFT, "it had enough")
    assert words[1].why_left(0) == "it had enough"
    assert words[0].heard() == []

"""One directory, many runs: what is left of a crashed one, two at once, and bounds whatever is stale."""

import signal
from contextlib import suppress
from dataclasses import replace
from urllib.parse import unquote

import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.link import until
from support.ranks import close, results, worlds
from zerohop._world.entries import Entry
from zerohop._world.store import Directory

APART = 3.5  # seconds between the starts of two ranks
TIMEOUT = 0.5  # of calls that have nobody to talk to
OVERRUN = 1.0  # that every call may take longer


@pytest.fixture
def last(victim):
    """The last one of eight, that has not come to a barrier."""
    return victim(8)


def first_of_eight(job):
    """Rank 0, once rank 7 has joined."""
    key, directory = "zerohop/world/7", Directory(job.directory)
    until(lambda: key in entries(directory), "rank 7 has joined")
    return worlds(job, [0], 8)[0]


def entries(directory):
    return [unquote(file.name) for file in directory.path.iterdir()]


def test_ranks_find_each_other_after_a_crash_however_late_they_come(rank_threads, last):
    first_of_eight(rank_threads).close()
    last.signal(signal.SIGKILL)  # its address stays behind, and that of rank 0
    [late] = worlds(rank_threads, [7], 8)
    waiting = Attempt(late.peer, 0)
    waiting.stays_pending(APART)
    [first] = worlds(rank_threads, [0], 8)
    assert waiting.value().alive
    assert first.peer(7).alive
    close([first, late])


def test_a_second_job_learns_who_is_there(rank_threads, last):
    world = first_of_eight(rank_threads)
    words = r"rank 7 of World 'world' in directory .* is taken, by process \d+ on "
    with pytest.raises(zh.Error, match=words), within(2):
        worlds(rank_threads, [7], 8)
    with pytest.raises(ValueError, match=r"has 3 ranks for rank 1, and 8 for rank [07] \(process"):
        worlds(rank_threads, [1], 3)
    assert world.peer(7).alive  # the first job goes on
    [other] = worlds(rank_threads, [7], 8, name="other")
    close([world, other])


def test_a_rank_that_is_over_joins_again_when_the_others_are(rank_threads):
    first, second = worlds(rank_threads, [0, 1], 2)
    first.close()
    blocked = Attempt(worlds, rank_threads, [0], 2)
    blocked.stays_pending(0.2)
    with pytest.raises(
        zh.PeerLost, match=r"rank 0: it has left, or its process \d+ on .* has ended"
    ):
        second.peer(0)
    second.close()
    [again] = blocked.value()
    [other] = worlds(rank_threads, [1], 2)
    results([Attempt(world.barrier) for world in (again, other)])
    close([again, other])


KINDS = {
    "silent": (signal.SIGSTOP, {}),  # it does not answer
    "gone": (signal.SIGKILL, {}),
    "earlier": (signal.SIGKILL, {"run": "of another time"}),
}


def forge(job, **changes):
    """Ranks 1 to 7 are at the address of rank 7, and on hosts whose locks are not seen here."""
    store = Directory(job.directory)
    entry = Entry.from_bytes(store.get("zerohop/world/7"))
    for rank in range(1, 8):
        made = replace(entry, boot=f"host {rank}", **changes)
        store.set(f"zerohop/world/{rank}", made.to_bytes())


CALLS = {
    "peer": lambda world, segment: world.peer(3, TIMEOUT),
    "barrier": lambda world, segment: world.barrier(TIMEOUT),
    "waitsome": lambda world, segment: segment.notify_waitsome(timeout=TIMEOUT),
    "atomic": lambda world, segment: segment.atomic_fetch_add(3, 0, 1, TIMEOUT),
}


# The victim may have connected before it was stopped: then it is found, on a host whose locks are not seen.
@pytest.mark.filterwarnings("ignore:file locks in directory")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_calls_end_in_time_whatever_is_stale(rank_threads, last, kind, call):
    world = first_of_eight(rank_threads)
    segment = world.segment(8)
    number, changes = KINDS[kind]
    last.signal(number)
    forge(rank_threads, **changes)
    errors = (zh.TransferTimeout, zh.PeerLost)
    ends = suppress(*errors) if kind == "silent" else pytest.raises(errors)
    with ends, within(TIMEOUT + OVERRUN):
        CALLS[call](world, segment)
    world.close()

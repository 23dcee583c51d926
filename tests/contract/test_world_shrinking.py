"""The survivors of a World agree who they are, and go on as a smaller one."""

import importlib
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.launchers import needs
from support.link import until
from support.members import ask
from support.members import member as start
from support.patience import patient
from support.ranks import TIMEOUT, close, results, worlds
from support.spawned import is_stopped
from zerohop._world.mpi import GatheredStore
from zerohop._world.store import ANSWER

pytestmark = pytest.mark.timeout(120)

AGREED = LOST_WITHIN + 3  # seconds: to see the loss, then to agree, make Endpoints and meet


@pytest.fixture
def members(rank_threads):
    """Ranks of a World, which have met."""
    made = []

    def make(size):
        made.extend(start(rank_threads, rank, size) for rank in range(size))
        assert ask(made, "meet") == ["met"] * size
        return list(made)

    yield make
    for each in made:
        each.discard()


def shrunk(members, times=1):
    """All have the same World of them alone, and it works."""
    size = len(members)
    with within(AGREED):
        answers = ask(members, "shrink")
    assert answers == [(rank, size, f"world, shrunk {times}") for rank in range(size)]
    check(members)


def check(members):
    size = len(members)
    everybody = [10 * rank for rank in range(size)]
    expected = [[*everybody, (rank - 1) % size] for rank in range(size)]
    assert ask(members, "exchange") == expected
    assert ask(members, "state") == [["healthy"] * size] * size


@pytest.mark.parametrize("dead", [[0], [2], [3], [0, 1], [1, 3]])
def test_those_who_are_left_go_on(members, dead):
    left = members(4)
    dying = [left[rank] for rank in dead]
    for member in dying:
        member.signal(signal.SIGKILL)
        left.remove(member)
    for error in ask(left, "meet"):
        assert isinstance(error, zh.PeerLost)
        assert "shrink()" in str(error)
    shrunk(left)


def test_one_after_the_other_until_one_is_left(members):
    left = members(4)
    for times in range(1, 4):
        left.pop(times % len(left)).signal(signal.SIGKILL)
        shrunk(left, times)


@pytest.mark.parametrize("second", [0, 1, 3])
def test_one_dies_while_they_agree(members, second):
    """All wait for it: it is not lost yet, and does not come."""
    left = members(5)
    left.pop(2).signal(signal.SIGKILL)
    dying = left[second]
    waiting = [member for member in left if member is not dying]
    for member in waiting:
        member.tell("shrink")
    for member in waiting:
        with pytest.raises(Exception, match="nothing came"):
            member.answer(patient(0.2))
    dying.signal(signal.SIGKILL)
    answers = [member.answer() for member in waiting]
    assert answers == [(rank, 3, "world, shrunk 1") for rank in range(3)]
    check(waiting)


@pytest.mark.parametrize("wait", [0.0, 0.02, 0.05])
def test_one_dies_at_some_moment_of_it(members, wait):
    """It came, too: it is in the World that they agree upon, perhaps, and then those that are left shrink that one."""
    left = members(5)
    left.pop(0).signal(signal.SIGKILL)
    for member in left:
        member.tell("shrink")
    time.sleep(wait)  # any moment is as good: what has to come out is the same
    dying = left.pop(1)
    dying.signal(signal.SIGKILL)
    for member in left:
        member.answer()
    again = ask(left, "exchange")
    if any(isinstance(each, Exception) for each in again):
        answers = ask(left, "shrink")
        assert answers == [(rank, 3, answers[0][2]) for rank in range(3)]
        check(left)


@pytest.mark.parametrize("stopped", [0, 2])
def test_one_that_hangs_counts_as_dead_and_learns_it(members, stopped):
    left = members(4)
    hanging = left.pop(stopped)
    hanging.signal(signal.SIGSTOP)
    shrunk(left)
    hanging.signal(signal.SIGCONT)
    [error] = ask([hanging], "meet")
    assert isinstance(error, zh.PeerLost)
    [error] = ask([hanging], "shrink")
    assert isinstance(error, zh.PeerLost)
    others = ", ".join(str(rank) for rank in range(4) if rank != stopped)
    assert f"rank {stopped} was excluded" in str(error)
    assert f"with the former ranks {others};" in str(error)
    check(left)


def test_nobody_hangs_in_a_collective_for_one_that_shrinks(rank_threads, members):
    """It has found the loss by other means than theirs, and they wait for it."""
    left = members(4)
    left.pop(3).signal(signal.SIGKILL)
    first, *others = left
    for member in others:
        member.tell("meet")
    first.tell("shrink")
    with within(LOST_WITHIN + 1):
        for member in others:
            assert isinstance(member.answer(), zh.PeerLost)
    for member in others:
        member.tell("shrink")
    assert [member.answer() for member in left] == [(n, 3, "world, shrunk 1") for n in range(3)]
    check(left)


def test_who_lives_and_does_not_come_is_waited_for(rank_threads):
    made = worlds(rank_threads, range(3), 3)
    results([Attempt(world.barrier) for world in made])
    for world in made[:2]:
        with pytest.raises(zh.TransferTimeout, match="shrink of 'world'"), within(3):
            world.shrink(0.2)
    late = [Attempt(world.shrink) for world in made]
    smaller = results(late)
    assert [world.size for world in smaller] == [
        3,
        3,
        3,
    ]  # nobody was lost, but the collectives are new
    results([Attempt(world.barrier) for world in smaller])
    close(made)
    results([Attempt(world.barrier) for world in smaller])
    assert made[0].shrink() is smaller[0]
    close(smaller)


def test_a_segment_of_the_old_world_serves_until_that_is_closed(rank_threads):
    made = worlds(rank_threads, range(3), 3)
    segments = [world.segment(8, dtype="int64") for world in made]
    segments[1].local[:] = 7
    results([Attempt(world.barrier) for world in made])
    made.pop().close()
    until(lambda: made[0].state()[2] == "corrupt", "rank 0 knows that rank 2 has left")
    smaller = results([Attempt(world.shrink) for world in made])
    segments[0].read(1, 0, 0, 8).wait()
    assert segments[0].local[0] == 7
    with pytest.raises(zh.PeerLost, match="has called shrink"):
        made[0].broadcast(np.zeros(1))
    close([*smaller, *made])


def test_a_second_run_in_the_directory_is_not_misled(rank_threads):
    for _ in range(2):
        made = worlds(rank_threads, range(3), 3)
        results([Attempt(world.barrier) for world in made])
        made.pop(0).close()
        smaller = results([Attempt(world.shrink) for world in made])
        assert [world.rank for world in smaller] == [0, 1]
        close([*smaller, *made])


def test_a_world_that_nobody_was_given_is_closed_with_the_old_one(rank_threads):
    made = worlds(rank_threads, range(2), 2)
    results([Attempt(world.barrier) for world in made])
    with pytest.raises(zh.TransferTimeout, match="has not decided"):
        made[1].shrink(0)
    with pytest.raises(zh.TransferTimeout, match="that rank has not made its World"):
        made[0].shrink(0.1)
    not_given = made[0]._next
    assert not not_given.endpoint.closed
    made[0].close()
    assert not_given.endpoint.closed
    with within(LOST_WITHIN):
        alone = made[1].shrink()
    assert (alone.size, alone.name) == (1, "world, shrunk 2")
    close([alone, made[1]])


@pytest.mark.parametrize("kind", ["FileStore", "TCPStore"])
def test_they_meet_in_a_store_of_pytorch(rank_threads, tmp_path, kind):
    """Whose get() would wait for what nobody has set."""
    needs(modules=("torch",))
    distributed = importlib.import_module("torch.distributed")
    if kind == "TCPStore":
        store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    else:
        store = distributed.FileStore(str(tmp_path / "file"))
    made = [zh.World(store, rank, 3, device=rank_threads.device) for rank in range(3)]
    results([Attempt(world.barrier) for world in made])
    made.pop(1).close()
    with within(LOST_WITHIN):
        smaller = results([Attempt(world.shrink) for world in made])
    results([Attempt(world.barrier) for world in smaller])
    close([*smaller, *made])


SERVER = """
import sys, torch.distributed as distributed
store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tcp_store():
    """Clients of PyTorch's server in another process, and that."""
    needs(modules=("torch",))
    distributed = importlib.import_module("torch.distributed")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe) as server:
        try:
            port = int(server.stdout.readline())
            yield lambda: distributed.TCPStore("127.0.0.1", port), server
        finally:
            server.kill()


@pytest.mark.parametrize("met", [True, False], ids=["met", "strangers"])
def test_a_store_of_pytorch_that_is_stopped_is_not_waited_for(
    rank_threads, tmp_path, tcp_store, met
):
    client, server = tcp_store
    options = {"device": rank_threads.device, "timeout": TIMEOUT}
    made = [zh.World(client(), rank, 3, **options) for rank in range(3)]
    if met:
        results([Attempt(world.barrier) for world in made])
    lost = made.pop(0)
    lost.close()
    server.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(server.pid), "the server has stopped")
    for call in [Attempt(world.shrink, 0.5) for world in made]:
        with within(2 * ANSWER + LOST_WITHIN):
            error = call.failure(zh.Error)
        assert "does not work (TimeoutError" in str(error)
        assert "give shrink(store=)" in str(error)
    if met:
        again = [partial(world.shrink, store=tmp_path / "fresh") for world in made]
        smaller = results([Attempt(call) for call in again])
        assert [(world.rank, world.size) for world in smaller] == [(0, 2), (1, 2)]
        results([Attempt(world.barrier) for world in smaller])
        close(smaller)
    fault = KeyError("which is put into the store")
    leaving = [Attempt(world.__exit__, KeyError, fault, None) for world in made]
    with within(2 * ANSWER):
        results(leaving)


def test_without_a_store_that_serves_another_one_is_needed(rank_threads, tmp_path):
    with zh.World(GatheredStore(), 0, 1, device=rank_threads.device) as world:
        with pytest.raises(zh.Error, match=r"no store in which .* give shrink\(store=\) a fresh"):
            world.shrink()
        with world.shrink(store=tmp_path / "fresh") as alone, alone.shrink() as again:
            assert again.name == "world, shrunk 2"

"""What Worlds of some ranks leave behind, and how they end for ranks that are late, dead or still in a call."""

import gc
import itertools
import os
import signal
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt, within
from support.forking import forking
from support.link import until
from support.members import ask
from support.members import member as start
from support.ranks import close, results, worlds
from zerohop import _core
from zerohop._world import notifications, seats, some_ranks, splits
from zerohop._world.notifications import SlotRanges

REMEMBERED = 8  # closed Worlds, here
UNTAKEN = "leaves the World .* without what others have sent"


def gathered(world: zh.World, value: int) -> list[int]:
    out = np.zeros(world.size, np.int64)
    world.all_gather(out, np.full(1, value))
    return out.tolist()


def held(world: zh.World) -> int:
    """Splits that have slots and memory on this rank, after a look at which are free."""
    made = world._membership._splits
    made.sweep()
    return len(made._taken)


def together(call: Any, made: list[zh.World], *given: Any) -> list[Any]:
    return results([Attempt(call, world, *given) for world in made])


# --- what comes back ---


def taken(world: zh.World) -> Counter[str]:
    """By this process, for its rank."""
    made, ranges = world._membership._splits, world._membership.ranges
    made.sweep()  # closes memory that was freed
    return Counter(
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=len(os.listdir("/proc/self/task")),
        mappings=sum(".so" not in line for line in Path("/proc/self/maps").open()),
        slots=sum(map(len, ranges._above)),
        memories=sum(len(memories) for _, memories in made._late),
        names=len(made._remembered),
    )


def thousand(world: zh.World) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """What 200 Worlds take at the same time, and what is left of them and of 1100 more, one after the other."""
    splits._GRACE, splits._REMEMBERED = 0.0, REMEMBERED
    everyone = range(world.size)

    def one(number: int) -> None:
        with world.split(everyone) as split:
            assert gathered(split, number) == [number] * world.size
            split.barrier()

    def nothing_held() -> bool:
        return held(world) == 0

    one(0)
    world.barrier()
    until(nothing_held, "the first is freed")
    world.barrier()
    before = taken(world)
    made = [world.split(everyone) for _ in range(200)]
    for number, each in enumerate(made):
        assert gathered(each, number) == [number] * world.size
    world.barrier()
    most = taken(world)
    most.subtract(before)
    for each in made:
        each.close()
    del each
    made.clear()
    for number in range(1100):
        one(number)
    world.barrier()
    until(nothing_held, "all are freed")
    world.barrier()
    left = taken(world)
    left.subtract(before)
    return before, most, left


def test_what_a_thousand_worlds_leave(rank_processes):
    for before, most, left in rank_processes(thousand, 2, deadline=150.0):
        assert most["descriptors"] >= 200
        assert most["slots"] >= 200
        assert left.pop("names") <= REMEMBERED
        assert all(count <= 8 for count in left.values()), (before, most, left)


def test_a_dead_rank_that_was_never_dialled_uses_nothing(rank_threads):
    (world,) = worlds(rank_threads, [0], 2)
    other = start(rank_threads, 1, 2)
    try:
        split = world.split([0, 1], name="pair")
        ask([other], "split", "pair", [0, 1])
        ask([other], "reach_in", "pair", 0)
        split.close()
        assert held(world) == 1
        other.signal(signal.SIGKILL)
        until(lambda: held(world) == 0, "its seat is free", LOST_WITHIN)
    finally:
        other.discard()
        world.close()


def test_who_comes_too_late_keeps_nothing(rank_threads):
    """The error it got is not kept with its frames: the World would stay until Python looks for cycles."""
    made = worlds(rank_threads, range(2), 2)
    early, late = (world.split([0, 1]) for world in made)
    early.close()
    gc.disable()
    try:
        with pytest.raises(zh.PeerLost, match="rank 0: it has left"):
            late.peer(0)
        late.close()
        until(lambda: held(made[1]) == 0, "it is free")
        alive = weakref.ref(late._membership)
        del late
        assert alive() is None
    finally:
        gc.enable()
    close(made)


def test_who_has_gone_says_so_until_it_is_heard(rank_threads, monkeypatch):
    made = worlds(rank_threads, range(2), 2)
    two = [world.split([0, 1]) for world in made]
    together(gathered, two, 1)
    fails, note = iter(["at once", "later", "later", "at once"]), seats.FarSeat._note

    class Failed:
        done = True

        def wait(self, seconds: float) -> None:
            raise zh.VerbsError("it breaks")

    def failing(seat: seats.FarSeat, value: int) -> Any:
        how = next(fails, "") if value == seats._GONE else ""
        if how == "at once":
            raise zh.VerbsError("it breaks")
        return Failed() if how else note(seat, value)

    monkeypatch.setattr(seats.FarSeat, "_note", failing)
    for split in two:
        split.close()
    for world in made:
        until(lambda world=world: held(world) == 0, "both are gone")
    assert next(fails, None) is None
    close(made)


def test_slots_rest_before_they_serve_another_world(monkeypatch):
    """Notifications for the last one may be under way."""
    now = [0.0]
    monkeypatch.setattr(notifications.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        notifications.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    count = 1000
    ranges = SlotRanges(notifications.FIRST + 4 * count)
    first = ranges.take_above(count)
    ranges.give_back(first)
    second = ranges.take_above(count)
    assert first != second
    now[0] += 2.0
    third = ranges.take_above(count)
    assert third == first
    for each in (second, third):
        ranges.give_back(each)
    before = now[0]
    segment = ranges.take(3 * count)  # does not fit beside those that rest
    assert now[0] > before
    last = ranges.take_above(count)
    with pytest.raises(ValueError, match="no range of 1000 notification slots left"):
        ranges.take_above(count)
    assert sorted([*segment, *last]) == list(range(notifications.FIRST, ranges._end))


def test_a_new_world_finds_its_slots_empty(rank_threads, monkeypatch):
    monkeypatch.setattr(notifications, "_REST", 0.0)
    (world,) = worlds(rank_threads, [0], 1)
    with world.split([0]) as split:
        slots = split._membership.slots
    for slot in slots.all:
        world.endpoint.notify(slot, 7)
    split = world.split([0])
    assert split._membership.slots == slots
    assert not any(world.endpoint.peek_notify(slot) for slot in slots.all)
    world.close()


# --- who is still in a call ---


@pytest.mark.parametrize("kind", ["in the background", "in another thread"])
def test_a_rank_in_a_call_is_not_gone(rank_threads, kind):
    """Its call may still write to the others, whose slots and memory stay until then."""
    made = worlds(rank_threads, range(2), 2)
    two = [world.split([0, 1]) for world in made]
    for _ in range(2):  # connected: the next small call takes the short way
        together(gathered, two, 1)
    there, go_on = threading.Event(), threading.Event()
    lines = two[0]._desk.lines
    hear = lines.hear

    def stand(*given: Any) -> bool:
        there.set()
        assert go_on.wait(60)
        return hear(*given)

    lines.hear = stand
    if kind == "in the background":
        call = two[0].all_reduce(np.zeros(1 << 20), wait=False)
        ended = Attempt(call.wait, 60.0)
    else:
        ended = Attempt(gathered, two[0], 1)
    assert there.wait(60)
    if kind == "in the background":
        with pytest.warns(RuntimeWarning, match="have ended: all_reduce of"):
            two[0].close()
    else:
        two[0].close()
    with pytest.warns(RuntimeWarning, match=UNTAKEN):
        two[1].close()
    assert [held(world) for world in made] == [1, 1]
    go_on.set()
    ended.failure(zh.Error)
    for world in made:
        until(lambda world=world: held(world) == 0, "no call is left")
    close(made)


def test_a_barrier_ends_with_its_world(rank_threads):
    made = worlds(rank_threads, range(2), 2, timeout=60.0)
    two = [world.split([0, 1]) for world in made]
    together(zh.World.barrier, two)
    waits = Attempt(two[0].barrier)
    waits.stays_pending(0.5)  # beyond its first slice
    two[0].close()
    assert "is closed" in str(waits.failure(zh.Error, LOST_WITHIN))
    two[1].close()
    for world in made:
        until(lambda world=world: held(world) == 0, "nobody is in the barrier")
    close(made)


def test_close_honours_its_timeout(rank_threads, monkeypatch):
    monkeypatch.setattr(some_ranks, "LAST", 60.0)
    (world,) = worlds(rank_threads, [0], 2)
    other = start(rank_threads, 1, 2)
    try:
        split = world.split([0, 1], name="pair")
        other.tell("split", "pair", [0, 1])
        other.answer()
        other.tell("gather_in", "pair")
        assert gathered(split, 0) == [0, 1]
        other.answer()
        other.signal(signal.SIGSTOP)
        with within(2.0):  # it is lost after 3 s and more
            split.close(timeout=0.1)
        with pytest.raises(ValueError, match="timeout"):
            world.split([0]).close(timeout=-1)
    finally:
        other.discard()
        world.close()


# --- who learns that a rank has left ---


@pytest.fixture
def asked(monkeypatch):
    """The ranks that rank 0 of a World has asked."""
    from zerohop.collectives.lines import Lines

    found: list[int] = []
    ask_one = Lines._ask

    def ask_and_note(lines: Lines, rank: int) -> None:
        ask_one(lines, rank)
        if lines.membership.rank == 0:
            found.append(rank)

    monkeypatch.setattr(Lines, "_ask", ask_and_note)
    return found


def test_who_leaves_is_noticed_before_all_are_asked(rank_threads, asked):
    size = 8
    made = worlds(rank_threads, range(size), size)
    all_of = [world.split(range(size)) for world in made]
    together(gathered, all_of, 1)
    asked.clear()
    waits = Attempt(gathered, all_of[0], 1)
    until(lambda: asked, "rank 0 has asked one")
    leaver = asked[0]  # its turn comes again after all others
    with pytest.warns(RuntimeWarning, match=UNTAKEN):
        all_of[leaver].close()
    assert f"rank {leaver} is lost" in str(waits.failure(zh.PeerLost, LOST_WITHIN))
    assert len(asked) <= 4
    close(made)


def test_who_leaves_after_its_part_ends_no_call(rank_threads, asked):
    made = worlds(rank_threads, range(3), 3)
    three = [world.split(range(3)) for world in made]
    together(gathered, three, 1)
    asked.clear()
    out, part = np.zeros(3), np.ones(1)
    root = Attempt(three[0].gather, out, part, 0)
    three[1].gather(None, part, 0)
    three[1].close()
    until(lambda: 1 in asked, "rank 0 has asked rank 1")
    root.stays_pending(0.3)
    assert asked.count(1) <= 2  # and then it waits for rank 2 alone
    three[2].gather(None, part, 0)
    root.value()
    assert out.tolist() == [1] * 3
    close(made)


def test_a_recv_in_an_ended_context_is_refused(rank_threads):
    made = worlds(rank_threads, range(2), 2)
    together(zh.World.barrier, made)
    peer, out = made[0].peer(1), np.zeros(4)
    _core.end_context(peer, 7)
    with pytest.raises(zh.Error, match="the group of this recv is closed"):
        _core.recv(peer, out, 1, 7)
    waiting = _core.recv(peer, out, 1, 8)
    _core.send(made[1].peer(0), np.ones(4), 1, 8).wait()
    waiting.wait()
    assert out.tolist() == [1] * 4
    close(made)


def test_a_child_closes_nothing_of_its_parent(rank_threads):
    made = worlds(rank_threads, range(2), 2)
    two = [world.split([0, 1]) for world in made]
    together(gathered, two, 1)
    with forking(), two[0]._desk._order._lock:  # as by a thread that is not in the child
        child = os.fork()
        if child == 0:
            try:
                two[0].close()
                made[0].close()
                os._exit(0)
            finally:
                os._exit(1)
    try:
        ended = until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG), "the child ends")
        assert ended.si_status == 0
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    together(gathered, two, 1)
    close(made)


def test_the_endpoint_may_be_closed_first(rank_threads):
    made = worlds(rank_threads, range(2), 2)
    two = [world.split([0, 1]) for world in made]
    together(gathered, two, 1)
    made[0].endpoint.close()
    for each in itertools.chain(two, made):
        each.close()
        assert each.closed

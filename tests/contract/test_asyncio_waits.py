"""zh.aio: thousands wait at once without a thread, each for its own; cancelling loses nothing, and all end."""

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt
from support.coroutines import (
    MANY,
    SOON,
    awaited,
    begin,
    in_loop,
    no_thread_more,
    run,
    settled,
    silent,
)
from support.link import until


@in_loop
async def test_thousands_wait_for_one_connection(couple, open_endpoint):
    a = couple[0]
    c = open_endpoint()
    with no_thread_more():
        tasks = [asyncio.create_task(zh.aio.connect(a, c.address)) for _ in range(MANY)]
        await asyncio.sleep(0)
    peers = await asyncio.gather(*tasks)
    assert all(peer is peers[0] for peer in peers)
    assert peers[0].id == c.id


@in_loop
async def test_all_kinds_at_once_and_each_is_served(couple, open_endpoint):
    a, b, to_b, to_a = couple
    memory = b.empty(8)
    kinds = 4
    count = MANY // kinds

    sink = a.register(np.zeros(count))
    waits = [zh.aio.wait_notify(a, slot) for slot in range(count)]
    waits += [zh.aio.lookup(to_b, f"name {n}") for n in range(count)]
    waits += [awaited(to_b.recv(sink[n : n + 1], tag=n)) for n in range(count)]
    waits += [zh.aio.accept(a) for _ in range(count)]
    with no_thread_more():
        tasks = await begin(waits)
    for n in range(count):
        to_a.notify(n, 1)
        b.share(f"name {n}", memory)
        to_a.send(np.ones(1), tag=n)
    await asyncio.gather(*tasks[: 3 * count])
    newcomers = [open_endpoint() for _ in range(3)]
    with no_thread_more():
        for c in newcomers:
            await zh.aio.connect(c, a.address)
        accepted = await asyncio.gather(*tasks[3 * count : 3 * count + 3])
    assert {peer.id for peer in accepted} == {c.id for c in newcomers}
    left = tasks[3 * count + 3 :]
    for task in left:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await settled(*left))


def put_all(ep, peer, link, count):
    link.meet("now")
    for slot in range(count):
        peer.notify(slot, slot + 1)
    link.meet("end")


def test_a_burst_of_another_process_reaches_everyone(remote):
    """More than the board keeps the order of, ahead of the thread that looks."""

    async def work(s) -> None:
        tasks = await begin([zh.aio.wait_notify(s.ep, slot) for slot in range(MANY)])
        s.link.meet("now")
        assert await asyncio.gather(*tasks) == list(range(1, MANY + 1))
        s.link.meet("end")

    with remote(put_all, MANY) as s:
        run(work(s))


@in_loop
async def test_who_waits_is_left_alone_until_something_comes(couple, monkeypatch):
    a = couple[0]
    looked: list[int] = []
    find = zh._core.find_notify

    def counted(endpoint: Any, first: int, *rest: Any) -> Any:
        looked.append(first)
        return find(endpoint, first, *rest)

    monkeypatch.setattr(zh._core, "find_notify", counted)

    tasks = await begin([zh.aio.wait_notify(a, slot) for slot in range(20)])
    for slot in range(20, 40):
        a.notify(slot, 1)  # for nobody
    assert await zh.aio.wait_notify_any(a, 20, 1) == (20, 1)
    await asyncio.sleep(0.3)
    assert looked == [*range(20), 20]
    for slot in range(20):
        a.notify(slot, 1)
    await asyncio.gather(*tasks)
    assert sorted(looked[21:]) == list(range(20))


@pytest.mark.parametrize("length", [1, 2, 3, 64, 1000, 65536])
@in_loop
async def test_ranges(couple, length):
    a, _, _, to_a = couple
    first = 0 if length == 65536 else 4711

    for slot in {first, first + length // 2, first + length - 1}:
        (task,) = await begin([zh.aio.wait_notify_any(a, first, length)])
        for beside in (first - 1, first + length):
            if 0 <= beside < 65536:
                a.notify(beside, 9)
        to_a.notify(slot, slot + 1)
        assert await task == (slot, slot + 1)


@in_loop
async def test_first_come_first_served(couple):
    a = couple[0]
    order: list[tuple[int, int]] = []

    async def one(number: int) -> None:
        order.append((number, await zh.aio.wait_notify(a, 5)))

    tasks = await begin([one(number) for number in range(5)])
    for value in range(1, 6):
        a.notify(5, value)
        await tasks[value - 1]
    assert order == [(number, number + 1) for number in range(5)]


@in_loop
async def test_a_value_that_stays_is_for_all(couple):
    a = couple[0]
    tasks = await begin([zh.aio.wait_notify(a, 5, reset=False) for _ in range(5)])
    a.notify(5, 3)
    assert await asyncio.gather(*tasks) == [3] * 5
    assert a.peek_notify(5) == 3


def test_two_loops_in_two_threads(couple):
    a, _, _, to_a = couple
    count = 500

    async def work(first: int) -> list[int]:
        tasks = await begin([zh.aio.wait_notify(a, slot) for slot in range(first, first + count)])
        ready.wait(SOON)
        return list(await asyncio.gather(*tasks))

    ready = threading.Barrier(3)
    loops = [Attempt(run, work(first)) for first in (0, count)]
    ready.wait(SOON)
    for slot in range(2 * count):
        to_a.notify(slot, slot + 1)
    values = [value for loop in loops for value in loop.value()]
    assert values == list(range(1, 2 * count + 1))


@in_loop
async def test_a_blocking_call_and_a_coroutine_wait_for_the_same(couple):
    """One of them gets the value, and the other the next."""
    a, _, _, to_a = couple
    (task,) = await begin([zh.aio.wait_notify(a, 5)])
    blocking = Attempt(a.wait_notify, 5)
    to_a.notify(5, 1)
    other = asyncio.ensure_future(asyncio.to_thread(blocking.value))
    await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
    to_a.notify(5, 2)
    assert sorted([await task, await other]) == [1, 2]


@in_loop
async def test_a_notification_outlives_its_waiter(couple):
    a = couple[0]
    (task,) = await begin([zh.aio.wait_notify(a, 5)])
    a.notify(5, 3)
    zh.aio._bells[asyncio.get_running_loop()]._on_ring()  # the task has not gone on yet
    task.cancel()
    assert isinstance((await settled(task))[0], asyncio.CancelledError)
    assert a.peek_notify(5) == 3
    assert await zh.aio.wait_notify(a, 5) == 3


@pytest.mark.parametrize("what", ["a notification", "a peer"])
@in_loop
async def test_the_next_waiter_gets_the_value_of_a_cancelled_one(couple, open_endpoint, what):
    a = couple[0]
    c = open_endpoint()

    def wait() -> Awaitable[Any]:
        return zh.aio.wait_notify(a, 5) if what == "a notification" else zh.aio.accept(a)

    first, second, third = await begin([wait(), wait(), wait()])
    second.cancel()
    if what == "a notification":
        a.notify(5, 3)
    else:
        c.connect(a.address)
        until(lambda: len(a.peers) == 2, "it is accepted")
    zh.aio._bells[asyncio.get_running_loop()]._on_ring()
    first.cancel()
    ends = await settled(first, second)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    found = await third
    assert (found == 3) if what == "a notification" else (found.id == c.id)


@in_loop
async def test_connecting_again_after_a_cancelled_attempt(couple, open_endpoint):
    a = couple[0]
    c = open_endpoint()
    task = asyncio.create_task(zh.aio.connect(a, c.address))
    await asyncio.sleep(0)
    task.cancel()
    assert isinstance((await settled(task))[0], asyncio.CancelledError)
    assert (await zh.aio.connect(a, c.address)).id == c.id


@in_loop
async def test_thousands_are_cancelled(couple):
    a, _, to_b, _ = couple
    waits = [zh.aio.wait_notify(a, slot) for slot in range(1000)]
    waits += [zh.aio.wait_notify(a, 1) for _ in range(3000)]
    waits += [zh.aio.accept(a) for _ in range(3000)]
    waits += [zh.aio.lookup(to_b, f"name {n}") for n in range(3000)]
    tasks = await begin(waits)
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await settled(*tasks))
    assert not zh.aio._bells[asyncio.get_running_loop()].lines
    assert not zh.aio._bells[asyncio.get_running_loop()]._waiting


def blocking_and_awaited(a: zh.Endpoint, to_b: Any, address: bytes) -> list[tuple[Any, Any]]:
    return [
        (lambda t: a.wait_notify(5, t), lambda t: zh.aio.wait_notify(a, 5, t)),
        (lambda t: a.wait_notify_any(5, 9, t), lambda t: zh.aio.wait_notify_any(a, 5, 9, t)),
        (lambda t: to_b.lookup("kv", t), lambda t: zh.aio.lookup(to_b, "kv", t)),
        (a.accept, lambda t: zh.aio.accept(a, t)),
        (lambda t: a.connect(address, t), lambda t: zh.aio.connect(a, address, t)),
    ]


@pytest.mark.parametrize("timeout", [0.0, 0.05, -1.0, "soon", float("nan")])
def test_timeouts_are_those_of_the_blocking_calls(couple, timeout):
    a, _, to_b, _ = couple

    async def failure(call: Callable[[Any], Awaitable[Any]]) -> BaseException:
        (end,) = await settled(asyncio.ensure_future(call(timeout)))
        return end

    with silent(a) as address:
        for blocking, call in blocking_and_awaited(a, to_b, address):
            with pytest.raises((zh.TransferTimeout, ValueError, TypeError)) as expected:
                blocking(timeout)
            end = run(failure(call))
            assert type(end) is expected.type
            if isinstance(end, zh.TransferTimeout) and timeout > 0:  # 0: its answer is not awaited
                assert str(end) == str(expected.value)
                assert end.effect == "nothing"


@in_loop
async def test_a_lost_peer_ends_all_that_waits_for_it(couple):
    a, b, to_b, _ = couple
    waits = [
        zh.aio.wait_notify(a, 5),
        zh.aio.wait_notify(a, 5),
        zh.aio.wait_notify_any(a, 9, 7),
    ]
    waits += [zh.aio.lookup(to_b, "kv"), awaited(to_b.recv(np.zeros(3), tag=1))]
    tasks = await begin(waits)
    accepting = asyncio.create_task(zh.aio.accept(a))
    await asyncio.to_thread(b.close)
    assert [type(end) for end in await settled(*tasks)] == [zh.PeerLost] * len(tasks)
    with pytest.raises(zh.PeerLost):
        await zh.aio.lookup(to_b, "kv")
    with pytest.raises(zh.PeerLost):
        await zh.aio.wait_notify(a, 5)
    with pytest.raises(zh.PeerLost, match="nothing listens there"):
        await zh.aio.connect(a, b.address)
    assert not accepting.done()
    accepting.cancel()


@in_loop
async def test_what_came_before_the_loss_is_delivered(couple):
    a, b, _, to_a = couple
    tasks = await begin([zh.aio.wait_notify(a, slot) for slot in (5, 6)])
    to_a.notify(5, 3)
    await asyncio.to_thread(b.close)
    ends = await settled(*tasks)
    assert ends[0] == 3
    assert isinstance(ends[1], zh.PeerLost)


@in_loop
async def test_closing_the_endpoint_ends_all_that_waits(couple):
    a, _, to_b, _ = couple
    waits = [zh.aio.wait_notify(a, 5), zh.aio.wait_notify(a, 5), zh.aio.accept(a)]
    waits += [
        zh.aio.accept(a),
        zh.aio.lookup(to_b, "kv"),
        awaited(to_b.recv(np.zeros(3), tag=1)),
    ]
    tasks = await begin(waits)
    await asyncio.to_thread(a.close, 0)
    ends = await settled(*tasks)
    assert all(isinstance(end, zh.Error) for end in ends), ends
    assert not any(isinstance(end, zh.TransferTimeout) for end in ends), ends
    with pytest.raises(zh.Error, match="closed"):
        await zh.aio.wait_notify(a, 5)


def test_loops_that_end_leave_nothing_behind_at_what_goes_on(couple):
    _, _, to_b, to_a = couple
    inbox = np.zeros(1)
    pending = to_b.recv(inbox, tag=1)

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(awaited(pending), 0.001)

    run(give_up())
    before, loops = len(os.listdir("/proc/self/fd")), 50
    for _ in range(loops):
        run(give_up())
    gc.collect()
    # Not one descriptor a loop. Connections of earlier tests may come and go meanwhile.
    until(lambda: len(os.listdir("/proc/self/fd")) < before + loops, "nothing is left")
    to_a.send(np.ones(1), tag=1)
    assert run(awaited(pending)) == 8
    assert inbox[0] == 1


def test_a_loop_that_is_closed_while_something_waits_is_freed_by_the_next(couple):
    a = couple[0]

    async def begin_one() -> None:
        await begin([zh.aio.wait_notify(a, 5)])

    def closed_too_early() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin_one())
        loop.close()
        return weakref.ref(loop)

    async def wait_elsewhere() -> None:
        (task,) = await begin([zh.aio.wait_notify(a, 6)])
        a.notify(6, 1)
        assert await task == 1

    ref = closed_too_early()
    run(wait_elsewhere())
    until(lambda: gc.collect() >= 0 and ref() is None, "the closed loop is freed")

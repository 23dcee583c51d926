"""zh.aio: thousands wait at once without a thread, each for its own, and the first that comes is served first."""

import asyncio
import threading
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
)


@in_loop
async def test_thousands_wait_for_one_connection(couple, open_endpoint) -> None:
    a = couple[0]
    c = open_endpoint()
    with no_thread_more():
        tasks = [asyncio.create_task(zh.aio.connect(a, c.address)) for _ in range(MANY)]
        await asyncio.sleep(0)
    peers = await asyncio.gather(*tasks)
    assert all(peer is peers[0] for peer in peers)
    assert peers[0].id == c.id


@in_loop
async def test_all_kinds_at_once_and_each_is_served(couple, open_endpoint) -> None:
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


def test_a_burst_of_another_process_reaches_everyone(remote) -> None:
    """More than the board keeps the order of, ahead of the thread that looks."""

    async def work(s) -> None:
        tasks = await begin([zh.aio.wait_notify(s.ep, slot) for slot in range(MANY)])
        s.link.meet("now")
        assert await asyncio.gather(*tasks) == list(range(1, MANY + 1))
        s.link.meet("end")

    with remote(put_all, MANY) as s:
        run(work(s))


@in_loop
async def test_who_waits_is_left_alone_until_something_comes(couple, monkeypatch) -> None:
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
async def test_ranges(couple, length: int) -> None:
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
async def test_first_come_first_served(couple) -> None:
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
async def test_a_value_that_stays_is_for_all(couple) -> None:
    a = couple[0]
    tasks = await begin([zh.aio.wait_notify(a, 5, reset=False) for _ in range(5)])
    a.notify(5, 3)
    assert await asyncio.gather(*tasks) == [3] * 5
    assert a.peek_notify(5) == 3


def test_two_loops_in_two_threads(couple) -> None:
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
async def test_a_blocking_call_and_a_coroutine_wait_for_the_same(couple) -> None:
    """One of them gets the value, and the other the next."""
    a, _, _, to_a = couple
    (task,) = await begin([zh.aio.wait_notify(a, 5)])
    blocking = Attempt(a.wait_notify, 5)
    to_a.notify(5, 1)
    other = asyncio.ensure_future(asyncio.to_thread(blocking.value))
    await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
    to_a.notify(5, 2)
    assert sorted([await task, await other]) == [1, 2]

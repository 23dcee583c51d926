"""zh.aio: cancelling loses nothing, and waits end as those of the blocking calls do."""

import asyncio
import gc
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import zerohop as zh
from support.coroutines import awaited, begin, in_loop, run, settled, silent
from support.link import until


@in_loop
async def test_a_notification_outlives_who_was_told_of_it(couple) -> None:
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
async def test_who_stands_behind_gets_what_a_cancelled_one_was_told_of(
    couple, open_endpoint, what: str
) -> None:
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
async def test_connecting_again_after_a_cancelled_attempt(couple, open_endpoint) -> None:
    a = couple[0]
    c = open_endpoint()
    task = asyncio.create_task(zh.aio.connect(a, c.address))
    await asyncio.sleep(0)
    task.cancel()
    assert isinstance((await settled(task))[0], asyncio.CancelledError)
    assert (await zh.aio.connect(a, c.address)).id == c.id


@in_loop
async def test_thousands_are_cancelled(couple) -> None:
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


# --- the ends of waits ---


def blocking_and_awaited(a: zh.Endpoint, to_b: Any, address: bytes) -> list[tuple[Any, Any]]:
    return [
        (lambda t: a.wait_notify(5, t), lambda t: zh.aio.wait_notify(a, 5, t)),
        (lambda t: a.wait_notify_any(5, 9, t), lambda t: zh.aio.wait_notify_any(a, 5, 9, t)),
        (lambda t: to_b.lookup("kv", t), lambda t: zh.aio.lookup(to_b, "kv", t)),
        (a.accept, lambda t: zh.aio.accept(a, t)),
        (lambda t: a.connect(address, t), lambda t: zh.aio.connect(a, address, t)),
    ]


@pytest.mark.parametrize("timeout", [0.0, 0.05, -1.0, "soon", float("nan")])
def test_timeouts_are_those_of_the_blocking_calls(couple, timeout: Any) -> None:
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
async def test_a_lost_peer_ends_all_that_waits_for_it(couple) -> None:
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
async def test_what_came_before_the_loss_is_delivered(couple) -> None:
    a, b, _, to_a = couple
    tasks = await begin([zh.aio.wait_notify(a, slot) for slot in (5, 6)])
    to_a.notify(5, 3)
    await asyncio.to_thread(b.close)
    ends = await settled(*tasks)
    assert ends[0] == 3
    assert isinstance(ends[1], zh.PeerLost)


@in_loop
async def test_closing_the_endpoint_ends_all_that_waits(couple) -> None:
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


def test_loops_that_end_leave_nothing_behind_at_what_goes_on(couple) -> None:
    _, _, to_b, to_a = couple
    inbox = np.zeros(1)
    pending = to_b.recv(inbox, tag=1)

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(awaited(pending), 0.001)

    run(give_up())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        run(give_up())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
    to_a.send(np.ones(1), tag=1)
    assert run(awaited(pending)) == 8
    assert inbox[0] == 1


def test_a_loop_that_is_closed_while_something_waits_is_freed_by_the_next(couple) -> None:
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

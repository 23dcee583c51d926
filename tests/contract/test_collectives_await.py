"""Coroutines await collectives that are under way."""

import asyncio

import numpy as np
import pytest
import zerohop as zh


def test_two_ranks_await_in_one_loop(pair):
    arrays = [np.full(100_000, float(world.rank + 1)) for world in pair]

    async def sums(world, array):
        for _ in range(5):
            await world.all_reduce(array, wait=False)
        await world.broadcast(array[:1], wait=False)

    async def main():
        await asyncio.gather(*map(sums, pair, arrays))

    asyncio.run(main())
    assert all((array == 3 * 2**4).all() for array in arrays)


def test_what_is_done_is_awaited_at_once(pair):
    first, second = pair
    under_way = second.broadcast(np.zeros(1), wait=False)
    done = first.broadcast(np.ones(1))
    under_way.wait()

    async def main():
        await done
        await under_way

    asyncio.run(main())


def test_a_failed_call_raises_where_it_is_awaited(pair):
    first, _ = pair

    async def main():
        await first.all_reduce(np.ones(3), wait=False, timeout=0.2)

    with pytest.raises(zh.TransferTimeout, match="rank 1 has not made the matching call"):
        asyncio.run(main())


def test_a_cancelled_wait_leaves_the_call_under_way(pair):
    first, second = pair
    here = np.zeros(3)
    call = second.broadcast(here, wait=False)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(of(call))), 0.05)
        task = asyncio.ensure_future(of(call))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not call.done

    async def of(awaited):
        await awaited

    asyncio.run(main())
    first.broadcast(np.full(3, 7.0))
    call.wait()
    assert (here == 7).all()


def test_calls_end_after_their_loop_is_closed(pair):
    """Nothing is left that would fail then."""
    first, second = pair
    call = second.broadcast(np.zeros(3), wait=False)

    async def main():
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()

    async def wait():
        await call

    asyncio.run(main())
    first.broadcast(np.ones(3))
    call.wait()
    assert call.done

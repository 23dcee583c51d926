"""await: results, many at once, timeouts, cancellation that leaves memory safe."""

import asyncio
import gc
import signal
import weakref

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.attempt import Attempt, within
from support.coroutines import awaited, run
from support.keeper import keep
from support.link import until


def test_awaiting_gives_what_wait_gives(remote):
    async def work(s, far, counter):
        memory, view = array(s.ep, "numpy", np.arange(50))
        assert await s.peer.write(memory, far) is None
        view[:] = 0
        await s.peer.read(far, memory)
        assert view.tolist() == list(range(50))
        assert await s.peer.fetch_add(counter, 4) == 10
        assert await s.peer.compare_swap(counter, 14, 1) == 14
        await s.peer.notify(3, 3)

    with remote(keep) as s:
        far = s.keeper.array("numpy", np.zeros(50, int)).remote
        run(work(s, far, s.keeper.array("numpy", np.array([10])).remote[0]))


def test_the_loop_runs_on_while_a_transfer_is_awaited(remote):
    async def work(s, memory, far):
        ticks, done = 0, False

        async def tick():
            nonlocal ticks
            while not done:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        for _ in range(4):
            await s.peer.write(memory, far)
        done = True
        await ticking
        assert ticks > 20

    with remote(keep) as s:
        far = s.keeper.array("empty", np.zeros(32 << 20, np.uint8)).remote
        run(work(s, s.ep.empty(32 << 20), far))


def test_endpoints_peers_and_memory_are_async_context_managers(device):
    async def work():
        async with zh.Endpoint(device, timeout=5) as a, zh.Endpoint(device, timeout=5) as b:
            far = b.empty(100)
            await a.connect(b.address).write(a.empty(100), far.remote)
        assert a.closed
        assert b.closed

    run(work())


def send_when_asked(ep, peer, link):
    link.meet("now")
    peer.send(np.arange(1000), tag=5).wait()


def test_a_timeout_leaves_the_transfer_running(remote):
    async def work(s):
        sink = np.zeros(1000, int)
        transfer = s.peer.recv(sink, tag=5)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError), within(2, at_least=0.04):
                await asyncio.wait_for(awaited(transfer), 0.05)
        assert not transfer.done
        s.link.meet("now")
        assert await transfer == sink.nbytes
        assert await transfer == sink.nbytes  # again: the same answer
        assert sink.tolist() == list(range(1000))

    with remote(send_when_asked) as s:
        run(work(s))


def test_cancelling_leaves_memory_safe(remote):
    """The bytes come after the task has gone: they still have a place to go to."""

    async def work(s):
        sink = np.zeros(1000, int)
        alive = weakref.ref(sink)
        task = asyncio.create_task(awaited(s.peer.recv(sink, tag=5)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task, sink
        gc.collect()
        assert alive() is not None, "a receive in progress has lost its memory"
        s.link.meet("now")
        s.returned()
        until(lambda: gc.collect() >= 0 and alive() is None, "the memory is released in the end")

    with remote(send_when_asked) as s:
        run(work(s))


def test_several_tasks_and_threads_wait_for_one_transfer(remote):
    async def work(s):
        transfer = s.peer.recv(np.zeros(1000, int), tag=5)
        blocking = Attempt(transfer.wait)
        tasks = [asyncio.create_task(awaited(transfer)) for _ in range(5)]
        gone = asyncio.create_task(awaited(transfer))
        await asyncio.sleep(0)
        gone.cancel()
        s.link.meet("now")
        assert await asyncio.gather(*tasks) == [8000] * 5
        assert blocking.value() == 8000

    with remote(send_when_asked) as s:
        run(work(s))


def test_one_transfer_is_awaited_in_two_loops(remote):
    with remote(send_when_asked) as s:
        transfer = s.peer.recv(np.zeros(1000, int), tag=5)
        with pytest.raises(asyncio.TimeoutError):
            run(awaited(transfer), timeout=0.05)  # this loop is closed before the end comes
        s.link.meet("now")
        assert run(awaited(transfer)) == 8000


@pytest.mark.parametrize("what", ["a transfer", "a notification"])
def test_a_signal_handler_may_cancel_what_is_awaited(thread, what):
    """By a callback that wakes no loop, as the kernel of a notebook does: what it asks for is done soon."""

    async def work(s):
        if what == "a transfer":
            task = asyncio.ensure_future(awaited(s.peer.recv(np.zeros(1000, int), tag=6)))
        else:
            task = asyncio.ensure_future(zh.aio.wait_notify(s.ep, 5))
        loop = asyncio.get_running_loop()
        before = signal.signal(signal.SIGALRM, lambda *_: loop.call_soon(task.cancel))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with within(3.0), pytest.raises(asyncio.CancelledError):
                await task
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    with thread(send_when_asked) as s:
        transfer = s.peer.recv(np.zeros(1000, int), tag=5)
        asyncio.run(work(s))
        s.link.meet("now")
        assert transfer.wait() == 8000

"""asyncio: what the blocking calls of Endpoint and Peer are for coroutines.

    import zerohop as zh

    await transfer                                   # Transfer.wait(); gather and wait_for take it too
    value = await zh.aio.wait_notify(ep, 7)          # Endpoint.wait_notify
    peer = await zh.aio.connect(ep, address)         # Endpoint.connect; accept likewise
    memory = await zh.aio.lookup(peer, "kv")         # Peer.lookup

Timeouts, results and errors are those of the blocking calls. Cancelling loses nothing: a notification
stays in its slot, and an accepted Peer goes to the next accept.

Completions of transfers reach the event loop through a descriptor; each other call has a thread.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from zerohop import _core
from zerohop.endpoint import Endpoint
from zerohop.errors import TransferTimeout

__all__ = ["accept", "connect", "lookup", "wait_notify", "wait_notify_any"]

_STEP = 0.1  # seconds after which a thread looks whether anybody still waits for it
_BEAT = 0.25  # seconds
T = TypeVar("T")


class _Beat:
    """Wakes one event loop now and then while something is awaited in it by ``with``.

    The kernel of a notebook (ipykernel 7) makes of an interrupt a callback that does not wake the loop: it would be
    called when the next thing happens, which may be what is awaited.
    """

    def __init__(self) -> None:
        self._awaited = 0
        self._timer: asyncio.TimerHandle | None = None  # None while nothing is: it holds the loop

    def __enter__(self) -> None:
        self._awaited += 1
        if self._timer is None:
            self._set()

    def __exit__(self, *_: object) -> None:
        self._awaited -= 1
        if self._awaited == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_BEAT, self._set)


class _LoopBell:
    """Wakes one event loop for the transfers that are awaited in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._bell = _core.Bell()
        self._tokens = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self._bell.fileno(), self._on_ring)

    def wait(self, transfer: _core.Transfer) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        token = next(self._tokens)
        self._waiting[token] = future
        self._bell.watch(transfer, token)
        return future

    def _on_ring(self) -> None:
        for token in self._bell.drain():
            future = self._waiting.pop(token)
            if not future.done():  # a cancelled task waits no more
                future.set_result(None)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopBell] = (
    weakref.WeakKeyDictionary()
)
_beats: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Beat] = weakref.WeakKeyDictionary()


def _beat() -> _Beat:
    return _beats.setdefault(asyncio.get_running_loop(), _Beat())


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)  # wait(0) then raises TransferTimeout


def await_transfer(transfer: _core.Transfer) -> Generator[Any, None, Any]:
    """What ``Transfer.__await__`` returns: ``transfer.wait()``, default timeout included."""
    if not transfer.done:
        loop = asyncio.get_running_loop()
        bell = _bells.get(loop)
        if bell is None:
            bell = _bells[loop] = _LoopBell(loop)
        future = bell.wait(transfer)
        bound = loop.call_later(transfer.timeout, _expire, future)
        try:
            with _beat():
                yield from future
        finally:
            bound.cancel()
        if not transfer.done:
            raise TransferTimeout(_core.overdue(transfer, transfer.timeout), effect="all")
    return transfer.wait(0)


async def _in_thread(
    function: Callable[[], T], on_cancel: Callable[[Future[T]], None] | None = None
) -> T:
    """function() in a thread of its own: the loop's pool is small, and its end waits for them all."""
    pool = ThreadPoolExecutor(1, "zerohop.aio")
    future = pool.submit(function)
    pool.shutdown(wait=False)
    try:
        with _beat():
            return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if on_cancel is not None:
            future.add_done_callback(on_cancel)
        raise


async def _in_steps(
    step: Callable[[float], T],
    timeout: float,
    on_cancel: Callable[[Future[T]], None] | None = None,
) -> T:
    """step(seconds) again and again until it is done, `timeout` is over or the task is cancelled."""
    until = time.monotonic() + timeout
    nobody_waits = threading.Event()

    def work() -> T:
        while True:
            left = until - time.monotonic()
            try:
                return step(min(max(left, 0.0), _STEP))
            except TransferTimeout as late:
                if nobody_waits.is_set() or left <= _STEP:
                    what, _, _ = str(late).partition(" (waited")
                    raise TransferTimeout(f"{what} (waited {timeout:.3g} s)") from None

    try:
        return await _in_thread(work, on_cancel)
    finally:
        nobody_waits.set()


async def connect(endpoint: Endpoint, address: bytes, timeout: float | None = None) -> _core.Peer:
    """As Endpoint.connect. A cancelled one may still connect: then connecting again is quick."""
    return await _in_thread(lambda: endpoint.connect(address, timeout))


async def accept(endpoint: Endpoint, timeout: float | None = None) -> _core.Peer:
    """As Endpoint.accept."""

    def give_back(future: Future[_core.Peer]) -> None:
        if not future.cancelled() and future.exception() is None:
            endpoint.put_back(future.result())

    bound = endpoint.timeout if timeout is None else timeout
    return await _in_steps(endpoint.accept, bound, give_back)


async def lookup(peer: _core.Peer, name: str, timeout: float | None = None) -> _core.RemoteMemory:
    """As Peer.lookup."""
    bound = peer.timeout if timeout is None else timeout
    return await _in_steps(lambda seconds: peer.lookup(name, seconds), bound)


async def wait_notify(
    endpoint: Endpoint, slot: int, timeout: float | None = None, reset: bool = True
) -> int:
    """As Endpoint.wait_notify."""
    _, value = await wait_notify_any(endpoint, slot, 1, timeout, reset)
    return value


async def wait_notify_any(
    endpoint: Endpoint, first: int, count: int, timeout: float | None = None, reset: bool = True
) -> tuple[int, int]:
    """As Endpoint.wait_notify_any."""
    bound = endpoint.timeout if timeout is None else timeout
    until = time.monotonic() + bound

    def look(seconds: float) -> tuple[int, int]:
        return endpoint.wait_notify_any(first, count, seconds, reset=False)

    while True:
        slot, value = await _in_steps(look, bound)
        # Taken here, behind the last point where the task can be cancelled.
        taken = endpoint.reset_notify(slot) if reset else value
        if taken:
            return slot, taken
        bound = max(0.0, until - time.monotonic())  # another waiter was quicker

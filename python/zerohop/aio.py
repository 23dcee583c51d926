"""asyncio: the blocking calls of Endpoint and Peer for coroutines.

    import zerohop as zh

    await transfer                                   # Transfer.wait(); gather and wait_for take it too
    await world.all_reduce(array, wait=False)        # a collective under way
    value = await zh.aio.wait_notify(ep, 7)          # Endpoint.wait_notify
    peer = await zh.aio.connect(ep, address)         # Endpoint.connect; accept likewise
    memory = await zh.aio.lookup(peer, "kv")         # Peer.lookup

Timeouts, results and errors are those of the blocking calls. Cancelling loses nothing: a notification
stays in its slot, and an accepted Peer goes to the next accept.

No thread waits, and nothing polls: each event loop has one descriptor, which the
engine makes readable when something awaited in that loop has completed. Coroutines of one loop that wait
for the same slots, or to accept, are served in order.
"""

from __future__ import annotations

import asyncio
import itertools
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from zerohop import _core
from zerohop.endpoint import Endpoint
from zerohop.errors import Error

__all__ = ["accept", "connect", "lookup", "wait_notify", "wait_notify_any"]

_BEAT = 0.25  # seconds
T = TypeVar("T")
_Wakeup: TypeAlias = "asyncio.Future[bool]"  # False: it timed out


class _Beat:
    """Wakes one event loop now and then while something is awaited in it by ``with``.

    The kernel of a notebook (ipykernel 7) turns an interrupt into a callback that does not wake the loop: it would run
    only at the next event, which may be the awaited one.
    """

    def __init__(self) -> None:
        self._awaited = 0
        # None while nothing is awaited: a timer holds the loop.
        self._timer: asyncio.TimerHandle | None = None

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
    """Wakes one event loop when something awaited in it completes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bell = _core.Bell()
        self.beat = _Beat()
        self.lines: dict[object, _Line] = {}  # by the key of what they wait for
        self._tokens = itertools.count()
        self._waiting: dict[int, _Wakeup] = {}
        loop.add_reader(self.bell.fileno(), self._on_ring)

    def expect(self, future: _Wakeup) -> int:
        """The token with which the bell rings for it."""
        token = next(self._tokens)
        self._waiting[token] = future
        return token

    def forget(self, token: int) -> bool:
        """False: it has already rung."""
        return self._waiting.pop(token, None) is not None

    def _on_ring(self) -> None:
        for token in self.bell.drain():
            future = self._waiting.pop(token, None)
            if future is not None and not future.done():  # a cancelled task no longer waits
                future.set_result(True)


class _Line:
    """The coroutines of one loop that wait for the same thing of an Endpoint, in order of arrival.

    Only the first is woken, because what it takes is gone for the next.

    watch: makes the bell ring with a token; returns the handle that ends that.
    """

    def __init__(
        self,
        bell: _LoopBell,
        endpoint: Endpoint,
        watch: Callable[[_core.Bell, int], int],
        key: object,
    ) -> None:
        self._bell, self._endpoint, self._watch, self._key = bell, endpoint, watch, key
        self._futures: OrderedDict[_Wakeup, None] = OrderedDict()
        self._token = self._wait = 0  # for the first waiter

    def join(self, future: _Wakeup) -> None:
        self._futures[future] = None
        if len(self._futures) == 1:
            self._begin(future)

    def leave(self, future: _Wakeup) -> None:
        first = next(iter(self._futures)) is future
        del self._futures[future]
        if not first:
            return
        if self._bell.forget(self._token):
            _core.leave_wait(self._endpoint, self._wait)
        if self._futures:
            self._begin(next(iter(self._futures)))
        else:
            del self._bell.lines[self._key]

    def _begin(self, future: _Wakeup) -> None:
        self._token = self._bell.expect(future)
        try:
            self._wait = self._watch(self._bell.bell, self._token)
        except Error:  # for example closed: the waiter looks and gets the error
            self._bell.forget(self._token)
            if not future.done():
                future.set_result(True)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopBell] = (
    weakref.WeakKeyDictionary()
)


def _bell_of(loop: asyncio.AbstractEventLoop) -> _LoopBell:
    bell = _bells.get(loop)
    if bell is None:
        for ref in _bells.keyrefs():
            other = ref()
            if other is not None and other.is_closed():  # the awaited objects keep it alive
                _bells.pop(other, None)
        bell = _bells[loop] = _LoopBell(loop)
    return bell


def _expire(future: _Wakeup) -> None:
    if not future.done():
        future.set_result(False)


def await_transfer(
    transfer: _core.Transfer, timeout: float | None = None
) -> Generator[Any, None, Any]:
    """What ``Transfer.__await__`` returns: ``transfer.wait()``, default timeout included."""
    return _outcome(transfer, transfer.timeout if timeout is None else timeout)


def await_call(on_end: Callable[[Callable[[], None]], None]) -> Generator[Any, None, None]:
    """Until the end of a call in a background thread. on_end: has a function called then, by that thread."""
    loop = asyncio.get_running_loop()
    future: _Wakeup = loop.create_future()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_expire, future)

    on_end(wake)
    with _bell_of(loop).beat:
        yield from future


def _outcome(of: Any, timeout: float) -> Generator[Any, None, Any]:
    """of: an object whose end the bell can watch."""
    if not of.done:
        loop = asyncio.get_running_loop()
        bell = _bell_of(loop)
        future: _Wakeup = loop.create_future()
        token = bell.expect(future)
        wait = bell.bell.watch(of, token)
        bound = loop.call_later(timeout, _expire, future)
        try:
            with bell.beat:
                yield from future
        finally:
            bound.cancel()
            if bell.forget(token):
                _core.leave_wait(of, wait)
    return _core.outcome(of, timeout)


@types.coroutine
def _until_over(of: Any, timeout: float) -> Generator[Any, None, Any]:
    return (yield from _outcome(of, timeout))


async def _in_line(
    endpoint: Endpoint,
    what: tuple[object, ...],
    find: Callable[[float | None], T | None],
    watch: Callable[[_core.Bell, int], int],
    timeout: float,
) -> T:
    """Returns the result of find(None) as soon as there is one, taken after the last point where the task can be cancelled.

    find(seconds) raises TransferTimeout if it finds nothing.
    """
    found = find(None)
    if found is not None:
        return found
    loop = asyncio.get_running_loop()
    bell = _bell_of(loop)
    key = (id(endpoint), *what)
    until = loop.time() + timeout
    while True:
        line = bell.lines.get(key)
        if line is None:
            line = bell.lines[key] = _Line(bell, endpoint, watch, key)
        future: _Wakeup = loop.create_future()
        line.join(future)
        bound = loop.call_at(until, _expire, future)
        try:
            with bell.beat:
                in_time = await future
            # If another waiter is quicker each time, the timer never fires.
            found = find(None if in_time and loop.time() < until else timeout)
        finally:
            bound.cancel()
            line.leave(future)
        if found is not None:
            return found  # else another waiter was quicker


async def connect(endpoint: Endpoint, address: bytes, timeout: float | None = None) -> _core.Peer:
    """As Endpoint.connect. A cancelled call may still connect; the next connect is then quick."""
    bound = _core.seconds(endpoint, timeout)
    peer: _core.Peer = await _until_over(_core.dial(endpoint, address), bound)
    return peer


async def accept(endpoint: Endpoint, timeout: float | None = None) -> _core.Peer:
    """As Endpoint.accept."""
    return await _in_line(
        endpoint,
        (),
        lambda late: _core.find_accepted(endpoint, late),
        lambda bell, token: bell.watch_accept(endpoint, token),
        _core.seconds(endpoint, timeout),
    )


async def lookup(peer: _core.Peer, name: str, timeout: float | None = None) -> _core.RemoteMemory:
    """As Peer.lookup."""
    bound = _core.seconds(peer, timeout)
    memory: _core.RemoteMemory = await _until_over(_core.ask(peer, name), bound)
    return memory


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
    return await _in_line(
        endpoint,
        (first, count),
        lambda late: _core.find_notify(endpoint, first, count, reset, late),
        lambda bell, token: bell.watch_slots(endpoint, first, count, token),
        _core.seconds(endpoint, timeout),
    )

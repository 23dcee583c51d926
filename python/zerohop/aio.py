"""``await transfer``: completions reach an event loop through a descriptor."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Generator
from typing import Any

from zerohop import _core

__all__ = ["await_transfer"]


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
            yield from future
        finally:
            bound.cancel()
    return transfer.wait(0)

"""Coroutines that wait, for the tests of zh.aio."""

import asyncio
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
import zerohop as zh

from support.patience import patient

MANY = 10_000
SOON = patient(30.0)  # seconds: none of the waits below takes them


def run(coroutine: Awaitable[Any], timeout: float = 2 * SOON) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, timeout))


@contextmanager
def no_thread_more() -> Iterator[None]:
    before = threading.active_count(), set(os.listdir("/proc/self/task"))
    yield
    assert threading.active_count() == before[0]
    assert set(os.listdir("/proc/self/task")) <= before[1]


async def begin(calls: list[Awaitable[Any]]) -> list[asyncio.Future[Any]]:
    """Tasks that wait by now."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


async def settled(*tasks: asyncio.Future[Any]) -> list[Any]:
    return list(await asyncio.gather(*tasks, return_exceptions=True))


async def awaited(transfer: zh.Transfer) -> Any:
    return await transfer


def nobody(ep: zh.Endpoint) -> bytes:
    """The address of an Endpoint that is gone."""
    other = zh.Endpoint(ep.device)
    address: bytes = other.address
    other.close()
    return address


@contextmanager
def silent(ep: zh.Endpoint) -> Iterator[bytes]:
    """The address of an Endpoint in whose place somebody listens who never answers."""
    address = nobody(ep)
    with pytest.raises(zh.PeerLost, match="nothing listens there") as refused:
        ep.connect(address)
    place = re.search(r" at (\S+):(\d+): ", str(refused.value))
    assert place is not None
    with socket.create_server((place[1], int(place[2]))):
        yield address


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test is a coroutine, and runs in an event loop of its own."""

    @wraps(test)
    def in_one(*arguments: Any, **fixtures: Any) -> None:
        run(test(*arguments, **fixtures))

    return in_one

"""The decode side: it asks for requests, so many at a time as there are lanes, and has their blocks in its cache."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zerohop import aio
from zerohop.examples.failures import OutOfStep
from zerohop.examples.kv_cache.plan import LANES, STOP, Request

if TYPE_CHECKING:
    from zerohop._core import Peer
    from zerohop.endpoint import Endpoint

__all__ = ["Decode"]


class Decode:
    """latencies: of every request that is here, from asking for it to its notification, in seconds."""

    def __init__(self, endpoint: Endpoint, prefill: Peer) -> None:
        self._endpoint, self._prefill = endpoint, prefill
        self.latencies: list[float] = []

    async def fetch(self, lap: Sequence[Request], looked: Callable[[], None]) -> float:
        """Returns when the blocks of all these are in the cache: after how many seconds. looked: called for each.

        Raises zerohop.Error, OutOfStep.
        """
        begin, line = time.perf_counter(), iter(lap)  # one line for all lanes
        await asyncio.gather(*(self._lane(lane, line, looked) for lane in range(LANES)))
        return time.perf_counter() - begin

    async def _lane(self, lane: int, line: Iterator[Request], looked: Callable[[], None]) -> None:
        """A lane is a tag for its messages and a slot for its notifications."""
        for request in line:
            begin = time.perf_counter()
            order = np.array([request.number, *request.wanted], np.int32)
            await self._prefill.send(order, tag=lane)
            value = await aio.wait_notify(self._endpoint, lane)  # all blocks are there before
            self.latencies.append(time.perf_counter() - begin)
            if value != request.number + 1:
                raise OutOfStep(
                    f"lane {lane}: got request {value - 1} where {request.number} is due"
                )
            looked()

    async def stop(self) -> None:
        """Ends the prefill side's lanes."""
        for lane in range(LANES):
            await self._prefill.send(np.array([STOP], np.int32), tag=lane)

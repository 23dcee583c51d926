"""The prefill side: it writes the blocks of each request that it is asked for into the cache of who asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from zerohop.errors import TransferTimeout
from zerohop.examples.kv_cache.plan import LANES, STOP, Blocks, Plan

if TYPE_CHECKING:
    from zerohop._core import Memory, Peer, RemoteMemory

__all__ = ["Prefill"]

_WAITS = (
    10  # of the Endpoint's timeout each, for the next request: the decode side checks in between
)


class Prefill:
    """here: the cache with what was computed; there: that of the decode side."""

    def __init__(self, decode: Peer, plan: Plan, here: Memory, there: RemoteMemory) -> None:
        self._decode, self._plan, self._here, self._there = decode, plan, here, there

    async def serve(self) -> None:
        """Returns when the decode side has stopped it. Raises zerohop.Error."""
        await asyncio.gather(*(self._lane(lane) for lane in range(LANES)))

    async def _lane(self, lane: int) -> None:
        plan = self._plan
        while (order := await self._next(lane))[0] != STOP:
            number, wanted = int(order[0]), order[1:]
            await self._decode.write_pages(
                self._here,
                self._there,
                plan.rows(plan.table(number)),
                plan.rows(wanted),
                notify=(lane, number + 1),
            )

    async def _next(self, lane: int) -> Blocks:
        """A request's number, and the decode side's blocks for it."""
        order = np.empty(1 + self._plan.longest, np.int32)
        message = self._decode.recv(order, tag=lane)
        for _ in range(_WAITS - 1):
            try:
                return order[: await message // order.itemsize]
            except TransferTimeout:
                pass  # it stays posted
        return order[: await message // order.itemsize]

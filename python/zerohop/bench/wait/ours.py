"""One rank of a World, with all defaults: the calls that `zerohop bench wait` times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import zerohop as zh
from zerohop.bench.plan import Order
from zerohop.bench.wait.plan import NBYTES
from zerohop.bench.wait.rounds import Call, Job
from zerohop.local import Link
from zerohop.mpi import GatheredStore


class WorldJob(Job):
    def __init__(self, link: Link, device: str | None) -> None:
        self.rank, self.size = link.rank, link.size
        self._link = link
        store = GatheredStore()
        self._world = zh.World(store, self.rank, self.size, device=device)
        for known in link.exchange(store.known):
            store.known.update(known)
        self._world.barrier()

    def facts(self) -> dict[str, Any]:
        world = self._world
        memory = world.endpoint.empty(NBYTES)
        far = (self.rank + 1) % self.size
        route = world.peer(far).route(memory, self._link.exchange(memory.remote)[far])
        return {"device": world.endpoint.device, "route": route.kind, "reason": route.reason}

    def perform(self, order: Order) -> Sequence[float]:
        return self.calls(order.test, order.nbytes, order.times)

    def close(self) -> None:
        self._world.close()

    def barrier(self, nbytes: int) -> Call:
        return lambda number: self._world.barrier()

    def exchange(self, nbytes: int) -> Call:
        array, out = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        to, source = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        return lambda number: self._world.send_recv(to=to, array=array, from_=source, out=out)

    def all_to_all(self, nbytes: int) -> Call:
        parts, out = (np.zeros(self.size * nbytes, np.uint8) for _ in range(2))
        return lambda number: self._world.all_to_all(out, parts)

    def broadcast(self, nbytes: int) -> Call:
        array = np.zeros(nbytes, np.uint8)
        return lambda number: self._world.broadcast(array, root=number % self.size)

    def all_gather(self, nbytes: int) -> Call:
        array, out = np.zeros(nbytes, np.uint8), np.zeros(self.size * nbytes, np.uint8)
        return lambda number: self._world.all_gather(out, array)

"""One rank of torch.distributed over gloo: the calls that `zerohop bench wait` times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerohop.bench.peers.gloo import begin_gloo, torch_facts
from zerohop.bench.plan import Order
from zerohop.bench.wait.plan import LATENCY
from zerohop.bench.wait.rounds import Call, Job, ping_pong
from zerohop.local import Link


class GlooJob(Job):
    def __init__(self, link: Link) -> None:
        self.rank, self.size = link.rank, link.size
        self._torch, self._dist = begin_gloo(link)
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        return torch_facts(self._torch)

    def perform(self, order: Order) -> Sequence[float]:
        if order.test == LATENCY:
            return self._latency(order.nbytes, order.times)
        return self.calls(order.test, order.nbytes, order.times)

    def _latency(self, nbytes: int, times: int) -> Sequence[float]:
        ball, other, dist = self._bytes(nbytes), 1 - self.rank, self._dist
        return ping_pong(
            self.rank == 0, lambda: dist.send(ball, other), lambda: dist.recv(ball, other), times
        )

    def close(self) -> None:
        self._dist.destroy_process_group()

    def _bytes(self, nbytes: int) -> Any:
        return self._torch.zeros(nbytes, dtype=self._torch.uint8)

    def barrier(self, nbytes: int) -> Call:
        return lambda number: self._dist.barrier()

    def exchange(self, nbytes: int) -> Call:
        array, out, dist = self._bytes(nbytes), self._bytes(nbytes), self._dist
        to, source = (self.rank + 1) % self.size, (self.rank - 1) % self.size

        def call(number: int) -> None:
            sent = dist.isend(array, to)
            dist.recv(out, source)
            sent.wait()

        return call

    def all_to_all(self, nbytes: int) -> Call:
        parts, out = (self._bytes(self.size * nbytes) for _ in range(2))
        return lambda number: self._dist.all_to_all_single(out, parts)

    def broadcast(self, nbytes: int) -> Call:
        array = self._bytes(nbytes)
        return lambda number: self._dist.broadcast(array, number % self.size)

    def all_gather(self, nbytes: int) -> Call:
        array, out = self._bytes(nbytes), self._bytes(self.size * nbytes)
        # PyTorch 2.13 has renamed it.
        gather = getattr(self._dist, "all_gather_single", None) or self._dist.all_gather_into_tensor
        return lambda number: gather(out, array)

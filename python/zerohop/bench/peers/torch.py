"""PyTorch between processes of a host: "gloo", torch.distributed over TCP, and "torch", `copy_` into shared memory."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

from zerohop.bench.loops import Call, Job, arrays_of, ping_pong, polled_ping_pong, stream_seconds
from zerohop.bench.plan import window
from zerohop.bench.workers import Player, require_module
from zerohop.local import Link

BOUND_S = 60.0
INSTALL = "pip install torch"
# All ranks are on this machine, whose host name may not resolve.
LOOPBACK = ("GLOO_SOCKET_IFNAME", "lo")
SETTINGS = "=".join(LOOPBACK)


class Gloo(Job):
    """With two ranks also `send` and `send_latency`, between halves of so many bytes."""

    def __init__(self, link: Link, arena_nbytes: int = 128) -> None:
        os.environ.setdefault(*LOOPBACK)
        self._torch = require_module("torch", INSTALL)
        self._dist = require_module("torch.distributed", INSTALL)
        self.rank, self.size = link.rank, link.size
        begin_group(self._dist, "gloo", link, BOUND_S)
        half = arena_nbytes // 2
        arena = self._bytes(arena_nbytes)
        self._outbox, self._inbox = arena[:half], arena[half:]
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        return torch_facts(self._torch)

    def close(self) -> None:
        self._dist.destroy_process_group()

    def send_latency(self, nbytes: int, times: int) -> Sequence[float]:
        send = partial(self._dist.send, self._outbox[:nbytes], 1 - self.rank)
        receive = partial(self._dist.recv, self._inbox[:nbytes], 1 - self.rank)
        return ping_pong(self.rank == 0, send, receive, times)

    def send(self, nbytes: int, times: int) -> float:
        act: Any = self._dist.irecv if self.rank else self._dist.isend
        array = (self._inbox if self.rank else self._outbox)[:nbytes]
        return stream_seconds(partial(act, array, 1 - self.rank), times, window(nbytes))

    def call(self, test: str, nbytes: int) -> Call:
        dist, torch, size = self._dist, self._torch, self.size
        mine, other, all_of_mine, gathered = map(self._bytes, arrays_of(test, size, nbytes))
        # PyTorch 2.13 has renamed it.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        floats = mine.view(torch.float32)

        def exchange(number: int) -> None:
            sent = dist.isend(mine, (self.rank + 1) % size)
            dist.recv(other, (self.rank - 1) % size)
            sent.wait()

        calls: dict[str, Call] = {
            "barrier": lambda number: dist.barrier(),
            "exchange": exchange,
            "all_to_all": lambda number: dist.all_to_all_single(gathered, all_of_mine),
            "broadcast": lambda number: dist.broadcast(mine, number % size),
            "all_gather": lambda number: gather(gathered, mine),
            "all_reduce": lambda number: dist.all_reduce(floats),
            "reduce_scatter": lambda number: scatter(floats, all_of_mine.view(torch.float32)),
        }
        return calls[test]

    def _bytes(self, nbytes: int) -> Any:
        return self._torch.full((nbytes,), 0, dtype=self._torch.uint8)  # written


class TorchShared(Player):
    """Copies into a tensor of the other process, in shared memory (torch.multiprocessing)."""

    def __init__(self, link: Link, arena_nbytes: int) -> None:
        self._torch = require_module("torch", INSTALL)
        multiprocessing = require_module("torch.multiprocessing", INSTALL)
        # Shared by name: descriptors would require related processes.
        multiprocessing.set_sharing_strategy("file_system")
        self._link = link
        self._first = link.rank == 0
        self._half = arena_nbytes // 2
        self._near = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8).share_memory_()
        card = bytes(ForkingPickler.dumps(self._near))  # bytes: no torch in the parent
        self._far = pickle.loads(link.exchange(card)[1 - link.rank])
        self._far[self._half :].fill_(0)  # touches every page of the target
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        return torch_facts(self._torch)

    def close(self) -> None:
        del self._far

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        source, target = self._near[:nbytes], self._far[self._half : self._half + nbytes]
        throw, memory = partial(target.copy_, source), self._near.numpy().data
        self._link.exchange(None)
        return polled_ping_pong(self._first, throw, id, memory, nbytes, self._half, times)

    def write(self, nbytes: int, times: int) -> float:
        target = self._far[self._half : self._half + nbytes]
        return self._copies(target, self._near[:nbytes], times)

    def read(self, nbytes: int, times: int) -> float:
        target = self._near[self._half : self._half + nbytes]
        return self._copies(target, self._far[:nbytes], times)

    def _copies(self, target: Any, source: Any, times: int) -> float:
        """Each copy is done when it returns."""
        return stream_seconds(partial(target.copy_, source), times, 1, id) if self._first else 0.0


def begin_group(dist: Any, backend: str, link: Link, bound: float) -> None:
    """Connects the ranks of the link at a port of rank 0 that the system chooses."""
    first = link.rank == 0
    wait = timedelta(seconds=bound)
    make = partial(dist.TCPStore, "127.0.0.1", timeout=wait, wait_for_workers=False)
    store = make(0, link.size, True) if first else None
    port = link.exchange(store.port if store is not None else None)[0]
    if store is None:
        store = make(port, link.size, False)
    dist.init_process_group(
        backend, store=store, rank=link.rank, world_size=link.size, timeout=wait
    )


def torch_facts(torch: Any) -> dict[str, Any]:
    return {"torch": torch.__version__, "torch_threads": torch.get_num_threads()}

"""The peer "gloo": torch.distributed's send and recv between two processes, over TCP."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from zerohop.bench.plan import window
from zerohop.bench.turns import require_module
from zerohop.local import Link

BOUND_S = 60.0
INSTALL = "pip install torch"
LOOPBACK = (
    "GLOO_SOCKET_IFNAME",
    "lo",
)  # all ranks are on this machine, whose name may lead nowhere
SETTINGS = "=".join(LOOPBACK)


class Gloo:
    def __init__(self, link: Link, arena_nbytes: int) -> None:
        self._torch, self._dist = begin_gloo(link)
        self._first = link.rank == 0
        self._other = 1 - link.rank
        half = arena_nbytes // 2
        arena = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8)
        self._outbox, self._inbox = arena[:half], arena[half:]
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        return torch_facts(self._torch)

    def close(self) -> None:
        self._dist.destroy_process_group()

    def send_latency(self, nbytes: int, times: int) -> Sequence[float]:
        send, recv, clock = self._dist.send, self._dist.recv, time.perf_counter
        outbox, inbox, other = self._outbox[:nbytes], self._inbox[:nbytes], self._other
        seconds = []
        for _ in range(times):
            begin = clock()
            if self._first:
                send(outbox, other)
            recv(inbox, other)
            if not self._first:
                send(outbox, other)
            seconds.append((clock() - begin) / 2)
        return seconds

    def send(self, nbytes: int, times: int) -> float:
        act: Any = self._dist.isend if self._first else self._dist.irecv
        array = (self._outbox if self._first else self._inbox)[:nbytes]
        pending: deque[Any] = deque()
        begin = time.perf_counter()
        for _ in range(times):
            if len(pending) == window(nbytes):
                pending.popleft().wait()
            pending.append(act(array, self._other))
        for work in pending:
            work.wait()
        return time.perf_counter() - begin


def begin_gloo(link: Link) -> tuple[Any, Any]:
    """(torch, torch.distributed), whose group are the ranks of the link."""
    os.environ.setdefault(*LOOPBACK)
    torch = require_module("torch", INSTALL)
    dist = require_module("torch.distributed", INSTALL)
    dist.init_process_group(
        "gloo",
        store=torch_store(dist, link),
        rank=link.rank,
        world_size=link.size,
        timeout=timedelta(seconds=BOUND_S),
    )
    return torch, dist


def torch_facts(torch: Any) -> dict[str, Any]:
    return {"torch": torch.__version__, "torch_threads": torch.get_num_threads()}


def torch_store(dist: Any, link: Link) -> Any:
    """Where PyTorch's ranks meet: a port of rank 0 that the system chooses."""
    bound = timedelta(seconds=BOUND_S)
    if link.rank == 0:
        store = dist.TCPStore(
            "127.0.0.1", 0, link.size, True, timeout=bound, wait_for_workers=False
        )
        link.exchange(store.port)
        return store
    port = link.exchange(None)[0]
    return dist.TCPStore("127.0.0.1", port, link.size, False, timeout=bound)

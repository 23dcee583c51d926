"""The peer "nccl": torch.distributed's send and recv between two processes, one GPU each."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from zerohop.bench.p2p.plan import ROUNDS
from zerohop.bench.p2p.torch_ipc import SETTINGS as SAFE_SETTINGS
from zerohop.bench.p2p.torch_ipc import call_cost, torch_with_gpus
from zerohop.bench.peers.gloo import torch_store
from zerohop.local import Link

BOUND_S = 30.0  # of NCCL's own waits
LOOPBACK = ("NCCL_SOCKET_IFNAME", "lo")  # both ranks are on this machine
SETTINGS = f"{SAFE_SETTINGS} {'='.join(LOOPBACK)}"
CYCLES_PER_S = 2e9  # of a GPU's clock, about, or fewer: the gate may hold longer than asked for
GATE_S = 5e-3  # what it holds longer than the enqueueing took before


class Nccl:
    def __init__(self, link: Link, gpus: tuple[int, int], arena_nbytes: int) -> None:
        os.environ.setdefault(*LOOPBACK)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        self._torch = torch_with_gpus()
        self._dist: Any = importlib.import_module("torch.distributed")
        self._link = link
        self._first = link.rank == 0
        self._other = 1 - link.rank
        device = self._torch.device("cuda", gpus[link.rank])
        self._torch.cuda.set_device(device)
        self._dist.init_process_group(
            "nccl",
            store=torch_store(self._dist, link),
            rank=link.rank,
            world_size=2,
            timeout=timedelta(seconds=BOUND_S),
        )
        half = arena_nbytes // 2
        arena = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8, device=device)
        self._outbox, self._inbox = arena[:half], arena[half:]
        self._send(8) if self._first else self._recv(8)  # makes the connection
        self._recv(8) if self._first else self._send(8)
        self._finish()
        link.exchange(None)

    def facts(self) -> dict[str, str]:
        return {"nccl": ".".join(map(str, self._torch.cuda.nccl.version()))}

    def close(self) -> None:
        self._dist.destroy_process_group()

    def _send(self, nbytes: int) -> None:
        self._dist.send(self._outbox[:nbytes], self._other)

    def _recv(self, nbytes: int) -> None:
        self._dist.recv(self._inbox[:nbytes], self._other)

    def _finish(self) -> None:
        self._torch.cuda.synchronize()

    def _timed(self, enqueue: Callable[[], object], times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            enqueue()
        self._finish()
        return time.perf_counter() - begin

    def _one_way(self, nbytes: int) -> Callable[[], None]:
        act = self._send if self._first else self._recv
        return lambda: act(nbytes)

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        self._link.exchange(None)
        act = self._one_way(nbytes)
        samples = [self._timed(act, 1) for _ in range(times)]
        return samples if self._first else ()

    def write(self, nbytes: int, times: int) -> float:
        self._link.exchange(None)
        return self._timed(self._one_way(nbytes), times)

    def both(self, nbytes: int, times: int) -> float:
        dist = self._dist
        operations = [
            dist.P2POp(dist.isend, self._outbox[:nbytes], self._other),
            dist.P2POp(dist.irecv, self._inbox[:nbytes], self._other),
        ]

        def exchange() -> None:
            for work in dist.batch_isend_irecv(operations):
                work.wait()  # orders the stream behind it, not this thread

        self._link.exchange(None)
        return self._timed(exchange, times)

    def stream_notify(self, nbytes: int, times: int) -> dict[str, float]:
        """A ping-pong of ROUNDS, enqueued ahead: a spinning kernel holds rank 0's stream back meanwhile."""
        acts = (self._send, self._recv) if self._first else (self._recv, self._send)

        def enqueue() -> float:
            begin = time.perf_counter()
            for _ in range(ROUNDS):
                for act in acts:
                    act(nbytes)
            return time.perf_counter() - begin

        enqueueing = enqueue()
        self._finish()
        longest = max(self._link.exchange(enqueueing))
        if self._first:
            self._torch.cuda._sleep(int((2 * longest + GATE_S) * CYCLES_PER_S))
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        enqueue()
        events[1].record()
        self._finish()
        return {"one_way": events[0].elapsed_time(events[1]) * 1e-3 / ROUNDS / 2}

    def post_write(self, nbytes: int, times: int) -> dict[str, float]:
        act = self._one_way(nbytes)
        self._link.exchange(None)
        cost = call_cost(act, self._finish)
        return {"per_call": cost} if self._first else {}

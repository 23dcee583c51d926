"""Kernels of two processes that communicate by zerohop: the code of each process. Rank 0 is the active one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

import zerohop as zh
from zerohop.bench.gda.kernels import Kernels
from zerohop.bench.gda.plan import (
    ARENA_NBYTES,
    PIECE_NBYTES,
    PLACED,
    SHAPES,
    WIDE_SHAPE,
    WORD_NBYTES,
    threads_of,
    warm_rounds,
)
from zerohop.bench.pair import LOOPS
from zerohop.bench.plan import Found, Order
from zerohop.bench.side import join
from zerohop.bench.workers import Player, together
from zerohop.local import Link

WAIT_S = 20.0  # bound of every wait on the host
SLOT = 40
WORD_AT = ARENA_NBYTES - WORD_NBYTES  # nothing else is put there
RATES = {"puts": "put_many", "values": "put_values"}  # for every shape: test and kernel
HEARD = {"put_notify": ("mapped", "gpu"), "put_notify_both": ("mapped", "both"),
         "put_notify_proxy": ("proxy", "both"), "put_notify_direct": ("direct", "both"),
         **{test: ("direct", "both", *places) for test, places in PLACED.items()}}  # fmt: skip


class Ours(Player):
    """Tests return {} in rank 1 if it is not active."""

    def __init__(
        self,
        link: Link,
        device: str | None,
        gpus: tuple[int, int],
        make_kernels: Callable[[int], Any] = Kernels,
    ) -> None:
        self._link = link
        gpu = gpus[link.rank]
        self._kernels = make_kernels(gpu)
        self._endpoint = zh.Endpoint(device, p2p=1, timeout=WAIT_S)
        self._side = join(link, self._endpoint, self._new_arena(f"cuda:{gpu}"))
        self._open = ExitStack()
        self._queues: dict[tuple[str, ...], Any] = {}
        board = together(link, lambda: self._new_board(f"cuda:{gpu}"))
        self._board = self._open.enter_context(board)
        self._base = 0  # base of the next ping-pong's values
        self._queue()

    def _new_arena(self, gpu: str) -> zh.Memory:
        return self._endpoint.empty(ARENA_NBYTES, "uint8", device=gpu)

    def _new_board(self, gpu: str) -> Any:
        return self._endpoint.device_board(SLOT, device=gpu)

    def _new_queue(self, way: str, hears: str, *places: str) -> Any:
        """places: of the send queue and of the completion queue."""
        side, (sends, completions) = self._side, places or ("auto", "auto")
        return side.peer.device_queue(
            side.arena,
            side.remote,
            hears=hears,
            way=way,
            send_queue=sends,
            completion_queue=completions,
        )

    def facts(self) -> dict[str, str]:
        return {"device": self._endpoint.device, "reason": self._queue().route.reason}

    def close(self) -> None:
        self._open.close()
        self._endpoint.close()

    def perform(self, order: Order) -> Any:
        test, _, nbytes, times = order
        kind, *which = test.split("_")
        if test in HEARD:
            return self._ping_pong(HEARD[test], nbytes, times)
        if kind in RATES:
            shape = SHAPES[which[0]]
            took = self._active(self._queue(), RATES[kind], shape, np.uint32(times))
            return {"rate": shape[0] * shape[1] * times / took[0]} if took else {}
        if kind == "entries":
            return self._entries(which[0], int(which[1]), times)
        if kind == "host":
            seconds = LOOPS[which[1]].write(self._side, nbytes, times) if self._side.first else 0.0
            return {"rate": times / seconds} if seconds else {}
        return super().perform(order)

    def bare_put_notify(self, nbytes: int, times: int) -> Found:
        arguments = (self._rounds(times), np.uint64(nbytes), np.uint64(WORD_AT))
        name, threads = "bare_ping_pong", threads_of(nbytes)
        return self._both(times, name, threads, self._queue().value, *arguments)

    def put_wide(self, nbytes: int, times: int) -> Found:
        return self._wide("put_wide", nbytes)

    def bare_wide(self, nbytes: int, times: int) -> Found:
        return self._wide("copy_wide", nbytes)

    def _queue(self, way: str = "mapped", hears: str = "gpu", *places: str) -> Any:
        """Opens it at the first use, in both ranks, while no kernel runs."""
        which = (way, hears, *places)
        if which not in self._queues:
            queue = together(self._link, lambda: self._new_queue(*which))
            self._queues[which] = self._open.enter_context(queue)
        return self._queues[which]

    def _rounds(self, times: int) -> Any:
        """The Rounds of kernels.cu."""
        warm = warm_rounds(times)
        words = np.array([times, warm, self._base, self._side.first], np.uint32)
        self._base += warm + times
        return np.void(words.tobytes())

    def _both(self, times: int, name: str, threads: int, *arguments: Any) -> Found:
        """Seconds one way of a ping-pong, which both ranks launch at once."""
        self._link.exchange(None)
        seconds = together(self._link, lambda: self._kernels.run(name, (1, threads), *arguments))
        return {"one_way": seconds[1] / (2 * times)}

    def _active(self, queue: Any, name: str, shape: tuple[int, int], *rest: Any) -> Any:
        """The times of rank 0's kernel; None in rank 1, which waits for it."""

        def run() -> Any:
            return self._kernels.run(name, shape, queue.value, *rest) if self._side.first else None

        return together(self._link, run)

    def _ping_pong(self, which: tuple[str, ...], nbytes: int, times: int) -> Found:
        queue = self._queue(*which)
        threads = threads_of(nbytes) if which[0] == "mapped" else 1
        name = "ping_pong_thread" if threads == 1 else "ping_pong_block"
        arguments = (self._board.value, self._rounds(times), np.uint64(nbytes), np.uint32(SLOT))
        return self._both(times, name, threads, queue.value, *arguments)

    def _wide(self, name: str, nbytes: int) -> Found:
        sizes = np.uint64(nbytes), np.uint64(PIECE_NBYTES)
        took = self._active(self._queue(), name, WIDE_SHAPE, *sizes)
        return {"bandwidth": nbytes / took[0]} if took else {}

    def _entries(self, way: str, threads: int, times: int) -> Found:
        took = self._active(self._queue(way, "both"), "post_values", (1, threads), np.uint32(times))
        each = threads * times
        return {"posted": took[1] / each, "done": took[2] / each} if took else {}

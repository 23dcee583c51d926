"""Kernels of two processes that communicate by zerohop: what each process does. Rank 0 is the active one."""

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
    SHAPES,
    WIDE_SHAPE,
    WORD_NBYTES,
    threads_of,
    warm_rounds,
)
from zerohop.bench.loops import LOOPS, Side
from zerohop.bench.turns import together
from zerohop.local import Link

WAIT_S = 20.0  # bound of every wait of the host
SLOT = 40
WORD_AT = ARENA_NBYTES - WORD_NBYTES  # where nothing else is put
Found = dict[str, float]  # by metric; {} of rank 1 where it is not active
Test = Callable[[Any, int, int], Found]  # of a player, nbytes and times


def rate_of(kernel: str, shape: str) -> Test:
    return lambda player, nbytes, times: player.rate(kernel, SHAPES[shape], times)


def entries_of(way: str, threads: int) -> Test:
    return lambda player, nbytes, times: player.entries(way, threads, times)


class Ours:
    puts_1x1 = rate_of("put_many", "1x1")
    puts_1x512 = rate_of("put_many", "1x512")
    puts_132x512 = rate_of("put_many", "132x512")
    values_1x1 = rate_of("put_values", "1x1")
    values_1x512 = rate_of("put_values", "1x512")
    values_132x512 = rate_of("put_values", "132x512")
    entries_proxy_1 = entries_of("proxy", 1)
    entries_proxy_32 = entries_of("proxy", 32)
    entries_proxy_128 = entries_of("proxy", 128)
    entries_direct_1 = entries_of("direct", 1)
    entries_direct_32 = entries_of("direct", 32)
    entries_direct_128 = entries_of("direct", 128)

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
        addresses = link.exchange(self._endpoint.address)
        peer = self._endpoint.connect(addresses[1 - link.rank])
        arena = self._new_arena(f"cuda:{gpu}")
        remote = link.exchange(arena.remote)[1 - link.rank]
        self._side = Side(link.rank == 0, self._endpoint, peer, arena, remote)
        self._open = ExitStack()
        self._queues: dict[tuple[str, str], Any] = {}
        board = together(link, lambda: self._new_board(f"cuda:{gpu}"))
        self._board = self._open.enter_context(board)
        self._base = 0  # of the next ping-pong's values
        self._queue("mapped", "gpu")

    def _new_arena(self, gpu: str) -> zh.Memory:
        return self._endpoint.empty(ARENA_NBYTES, "uint8", device=gpu)

    def _new_board(self, gpu: str) -> Any:
        return self._endpoint.device_board(SLOT, device=gpu)

    def _new_queue(self, way: str, hears: str) -> Any:
        side = self._side
        return side.peer.device_queue(side.arena, side.remote, hears=hears, way=way)

    def facts(self) -> dict[str, str]:
        queue = self._queue("mapped", "gpu")
        return {"device": self._endpoint.device, "route_reason": queue.route.reason}

    def close(self) -> None:
        self._open.close()
        self._endpoint.close()

    def _queue(self, way: str, hears: str) -> Any:
        """Opened at the first use, by both ranks, while no kernel runs."""
        if (way, hears) not in self._queues:
            queue = together(self._link, lambda: self._new_queue(way, hears))
            self._queues[way, hears] = self._open.enter_context(queue)
        return self._queues[way, hears]

    def _rounds(self, times: int) -> Any:
        """The Rounds of kernels.cu."""
        warm = warm_rounds(times)
        words = np.array([times, warm, self._base, self._side.first], np.uint32)
        self._base += warm + times
        return np.void(words.tobytes())

    def _both(self, times: int, name: str, threads: int, *arguments: Any) -> Found:
        """One way of a ping-pong, which both ranks launch at once."""
        self._link.exchange(None)
        seconds = together(self._link, lambda: self._kernels.run(name, (1, threads), *arguments))
        return {"one_way": seconds[1] / (2 * times)}

    def _ping_pong(self, way: str, hears: str, nbytes: int, times: int) -> Found:
        queue = self._queue(way, hears)
        threads = threads_of(nbytes) if way == "mapped" else 1
        name = "ping_pong_thread" if threads == 1 else "ping_pong_block"
        arguments = (self._board.value, self._rounds(times), np.uint64(nbytes), np.uint32(SLOT))
        return self._both(times, name, threads, queue.value, *arguments)

    def put_notify(self, nbytes: int, times: int) -> Found:
        return self._ping_pong("mapped", "gpu", nbytes, times)

    def bare_put_notify(self, nbytes: int, times: int) -> Found:
        queue = self._queue("mapped", "gpu")
        arguments = (self._rounds(times), np.uint64(nbytes), np.uint64(WORD_AT))
        return self._both(times, "bare_ping_pong", threads_of(nbytes), queue.value, *arguments)

    def put_notify_both(self, nbytes: int, times: int) -> Found:
        return self._ping_pong("mapped", "both", nbytes, times)

    def put_notify_proxy(self, nbytes: int, times: int) -> Found:
        return self._ping_pong("proxy", "both", nbytes, times)

    def put_notify_direct(self, nbytes: int, times: int) -> Found:
        return self._ping_pong("direct", "both", nbytes, times)

    def word(self, nbytes: int, times: int) -> Found:
        queue = self._queue("mapped", "gpu")
        arguments = (queue.value, self._rounds(times), np.uint64(WORD_AT))
        return self._both(times, "word_ping_pong", 1, *arguments)

    def _active(self, queue: Any, name: str, shape: tuple[int, int], *rest: Any) -> Any:
        """What rank 0's kernel took; None in rank 1, which waits for it."""
        return together(
            self._link,
            lambda: (
                self._kernels.run(name, shape, queue.value, *rest) if self._side.first else None
            ),
        )

    def _wide(self, name: str, nbytes: int) -> Found:
        queue = self._queue("mapped", "gpu")
        took = self._active(queue, name, WIDE_SHAPE, np.uint64(nbytes), np.uint64(PIECE_NBYTES))
        return {"bandwidth": nbytes / took[0]} if took else {}

    def put_wide(self, nbytes: int, times: int) -> Found:
        return self._wide("put_wide", nbytes)

    def bare_wide(self, nbytes: int, times: int) -> Found:
        return self._wide("copy_wide", nbytes)

    def rate(self, name: str, shape: tuple[int, int], times: int) -> Found:
        took = self._active(self._queue("mapped", "gpu"), name, shape, np.uint32(times))
        return {"rate": shape[0] * shape[1] * times / took[0]} if took else {}

    def entries(self, way: str, threads: int, times: int) -> Found:
        queue = self._queue(way, "both")
        took = self._active(queue, "post_values", (1, threads), np.uint32(times))
        each = threads * times
        return {"posted": took[1] / each, "done": took[2] / each} if took else {}

    def host_puts_python(self, nbytes: int, times: int) -> Found:
        return self._host_puts("python", nbytes, times)

    def host_puts_cpp(self, nbytes: int, times: int) -> Found:
        return self._host_puts("cpp", nbytes, times)

    def _host_puts(self, driver: str, nbytes: int, times: int) -> Found:
        seconds = LOOPS[driver].write(self._side, nbytes, times)
        return {"rate": times / seconds} if self._side.first else {}

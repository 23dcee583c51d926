"""The peer "torch": `copy_` into a tensor of the other process, in shared memory (torch.multiprocessing)."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from zerohop.bench.loops import poll_for
from zerohop.bench.peers.gloo import INSTALL, torch_facts
from zerohop.bench.turns import require_module
from zerohop.local import Link


class TorchShared:
    def __init__(self, link: Link, arena_nbytes: int) -> None:
        self._torch = require_module("torch", INSTALL)
        multiprocessing = require_module("torch.multiprocessing", INSTALL)
        # Named, so that the name alone is sent; by descriptor the processes would have to be relatives.
        multiprocessing.set_sharing_strategy("file_system")
        self._link = link
        self._first = link.rank == 0
        self._half = arena_nbytes // 2
        self._near = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8).share_memory_()
        card = bytes(ForkingPickler.dumps(self._near))  # bytes: no torch in the parent
        self._far = pickle.loads(link.exchange(card)[1 - link.rank])
        self._far[self._half :].fill_(0)  # touches every page that is written
        link.exchange(None)

    def facts(self) -> dict[str, Any]:
        return torch_facts(self._torch)

    def close(self) -> None:
        del self._far

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        """Its last byte is polled, and tells the round (1 to 255, never 0)."""
        source, target = self._near[:nbytes], self._far[self._half : self._half + nbytes]
        memory = self._near.numpy().data
        place = self._half + nbytes - 1
        clock = time.perf_counter
        seconds = []
        self._link.exchange(None)
        for number in range(1, times + 1):
            mark = 1 + number % 255
            begin = clock()
            if not self._first:
                poll_for(memory, place, mark)
            memory[nbytes - 1] = mark
            target.copy_(source)
            if self._first:
                poll_for(memory, place, mark)
            seconds.append((clock() - begin) / 2)
        memory[place] = 0
        return seconds

    def write(self, nbytes: int, times: int) -> float:
        target = self._far[self._half : self._half + nbytes]
        return self._copies(target, self._near[:nbytes], times)

    def read(self, nbytes: int, times: int) -> float:
        target = self._near[self._half : self._half + nbytes]
        return self._copies(target, self._far[:nbytes], times)

    def _copies(self, target: Any, source: Any, times: int) -> float:
        if not self._first:
            return 0.0
        begin = time.perf_counter()
        for _ in range(times):
            target.copy_(source)
        return time.perf_counter() - begin

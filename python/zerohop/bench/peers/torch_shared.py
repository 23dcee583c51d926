"""The peer "torch": `copy_` into a tensor of the other process, in shared memory (torch.multiprocessing)."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

from zerohop.bench.loops import polled_ping_pong, stream_seconds
from zerohop.bench.peers.gloo import INSTALL, torch_facts
from zerohop.bench.workers import Player, require_module
from zerohop.local import Link


class TorchShared(Player):
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
        """Each is done when it returns."""
        return stream_seconds(partial(target.copy_, source), times, 1, id) if self._first else 0.0

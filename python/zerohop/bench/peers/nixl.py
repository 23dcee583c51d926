"""The peer "nixl": NVIDIA's transfer library, with its UCX backend, from host memory to host memory.

Each measurement prepares its transfer once and posts it again and again, as NIXL is designed.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zerohop.bench.loops import ping_pong, stream_seconds
from zerohop.bench.plan import PeerFailed, window
from zerohop.bench.workers import Player, require_module
from zerohop.local import Link

BOUND_S = 60.0
MEMORY = "DRAM"
LOOKS = 1024  # polls between two clock readings


class Nixl(Player):
    def __init__(self, link: Link, arena_nbytes: int) -> None:
        os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
        os.environ.setdefault("UCX_LOG_LEVEL", "error")
        api = require_module("nixl._api", "pip install nixl")
        self._link = link
        self._first = link.rank == 0
        self._name, self._other = (f"zerohop-bench-{rank}" for rank in (link.rank, 1 - link.rank))
        self._agent: Any = api.nixl_agent(self._name, api.nixl_agent_config(backends=["UCX"]))
        self._arena = np.zeros(arena_nbytes, np.uint8)
        whole = [(self._arena.ctypes.data, arena_nbytes, 0, "")]
        self._registered = self._agent.register_memory(whole, mem_type=MEMORY)
        card = self._agent.get_agent_metadata(), self._arena.ctypes.data
        metadata, self._far = link.exchange(card)[1 - link.rank]
        self._agent.add_remote_agent(metadata)
        self._agent.make_connection(self._other)
        self._half = arena_nbytes // 2
        link.exchange(None)

    def facts(self) -> dict[str, str]:
        metadata = require_module("importlib.metadata", "")
        return {"nixl": metadata.version("nixl")}

    def close(self) -> None:
        """In this order: NIXL crashes at exit if memory is still registered."""
        self._agent.remove_remote_agent(self._other)
        self._link.exchange(None)
        self._agent.deregister_memory(self._registered)
        del self._agent

    def latency(self, nbytes: int, times: int) -> Sequence[float]:
        """Seconds of a write and its notification, which NIXL sends when the state of the write is polled."""
        transfer = self._prepare("WRITE", nbytes)

        def throw() -> None:
            self._agent.transfer(transfer, b"ball")
            self._await(transfer)

        self._link.exchange(None)
        seconds = ping_pong(self._first, throw, self._await_note, times)
        self._agent.release_xfer_handle(transfer)
        return seconds

    def write(self, nbytes: int, times: int) -> float:
        return self._stream("WRITE", nbytes, times)

    def read(self, nbytes: int, times: int) -> float:
        return self._stream("READ", nbytes, times)

    def _prepare(self, operation: str, nbytes: int) -> Any:
        """Prepares a transfer from the first half to the other side's second half, or back from its first."""
        here, there = self._arena.ctypes.data, self._far
        if operation == "WRITE":
            there += self._half
        else:
            here += self._half
        near, far = (
            self._agent.get_xfer_descs([(place, nbytes, 0)], mem_type=MEMORY)
            for place in (here, there)
        )
        return self._agent.initialize_xfer(operation, near, far, self._other, b"")

    def _stream(self, operation: str, nbytes: int, times: int) -> float:
        if not self._first:
            return 0.0
        width = min(times, window(nbytes))
        transfers = [self._prepare(operation, nbytes) for _ in range(width)]
        by_turns = itertools.cycle(transfers)

        def post() -> Any:
            transfer = next(by_turns)
            self._agent.transfer(transfer)
            return transfer

        took = stream_seconds(post, times, width, self._await)
        for transfer in transfers:
            self._agent.release_xfer_handle(transfer)
        return took

    def _await(self, transfer: Any) -> None:
        def done() -> bool:
            state = self._agent.check_xfer_state(transfer)
            if state == "ERR":
                raise PeerFailed("NIXL: a transfer ended with an error")
            return bool(state == "DONE")

        self._look(done, "a transfer was not done")

    def _await_note(self) -> None:
        self._look(self._agent.get_new_notifs, "no notification came")

    def _look(self, look: Callable[[], object], complaint: str) -> None:
        until = time.monotonic() + BOUND_S
        while time.monotonic() < until:
            for _ in range(LOOKS):
                if look():
                    return
        raise PeerFailed(f"NIXL: {complaint} after {BOUND_S:g} s")

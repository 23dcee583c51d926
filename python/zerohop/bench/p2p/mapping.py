"""zerohop's mappings of the other process's memory: the cost of the first one, and of finding it again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import zerohop as zh
from zerohop.bench.calls import wait_for_all
from zerohop.bench.p2p.plan import BATCHES, MAPPINGS, POSTS
from zerohop.bench.plan import Found
from zerohop.bench.side import Side
from zerohop.bench.workers import together
from zerohop.local import Link
from zerohop.observe.stats import median_error

WARM = 20  # writes whose median is that of a mapped write
VIEW_NBYTES = 8


class Mappings:
    """make: makes memory of rank 1, of so many bytes, to be mapped."""

    def __init__(self, link: Link, side: Side, make: Callable[[int], zh.Memory]) -> None:
        self._link = link
        self._side = side
        self._make = make

    def measure(self, nbytes: int) -> Found:
        """Seconds, of rank 0: "first", the extra time of the first write to an allocation over later ones;
        "cached", the extra time to post a write by a new RemoteMemory over a known
        one, with its standard error, "cached_error". A difference within the noise may be negative.
        """
        first: list[float] = []
        cached: list[float] = []
        for _ in range(MAPPINGS):
            with self._theirs(nbytes) as remote:
                if self._side.first:
                    known = remote[:VIEW_NBYTES]
                    once, *later = (self._post([known]) for _ in range(1 + WARM))
                    first.append(once[1] - statistics.median(whole for _, whole in later))
                    cached += [self._cached_post(remote, known, turn) for turn in range(BATCHES)]
        if not self._side.first:
            return {}
        found = {"first": statistics.median(first), "cached": statistics.median(cached)}
        return {**found, "cached_error": median_error(cached)}

    @contextmanager
    def _theirs(self, nbytes: int) -> Iterator[zh.RemoteMemory]:
        """Memory that rank 1 makes, and closes when both ranks have finished."""
        fresh = together(self._link, lambda: None if self._side.first else self._make(nbytes))
        remotes = self._link.exchange(None if fresh is None else fresh.remote)
        yield remotes[1]
        self._link.exchange(None)
        if fresh is not None:
            fresh.close()

    def _cached_post(self, remote: zh.RemoteMemory, known: zh.RemoteMemory, turn: int) -> float:
        """The difference between a batch by new views and one by the known view; they take turns to begin."""
        places = range(0, POSTS * VIEW_NBYTES, VIEW_NBYTES)
        parts = [remote[place : place + VIEW_NBYTES] for place in places]
        new = [zh.RemoteMemory.from_bytes(part.to_bytes()) for part in parts]
        order = [new, [known] * POSTS][:: -1 if turn % 2 else 1]
        seconds = [self._post(targets)[0] for targets in order][:: -1 if turn % 2 else 1]
        return seconds[0] - seconds[1]

    def _post(self, targets: Sequence[zh.RemoteMemory]) -> tuple[float, float]:
        """Seconds of each call of a batch that is then waited for, and of the whole batch."""
        source, write = self._side.arena[:VIEW_NBYTES], self._side.peer.write
        begin = time.perf_counter()
        transfers = [write(source, target) for target in targets]
        posted = time.perf_counter()
        wait_for_all(transfers)
        return (posted - begin) / len(targets), time.perf_counter() - begin

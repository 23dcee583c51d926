"""Collectives with all that each rank gives and is to have in the end: arrays with guard bytes, poisoned outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np

POISON = 0xA5
GUARD = 64  # bytes on either side


class Guarded:
    """`array`: of bytes between guards, which check() looks at."""

    def __init__(self, nbytes: int) -> None:
        self._all = np.full(nbytes + 2 * GUARD, POISON, np.uint8)
        self.array = self._all[GUARD : GUARD + nbytes]

    def check(self, expected: np.ndarray, what: str) -> None:
        assert np.array_equal(self.array, expected), f"{what}: {wrong(self.array, expected)}"
        for guard in (self._all[:GUARD], self._all[len(self._all) - GUARD :]):
            assert (guard == POISON).all(), f"{what}: beyond the array"


def wrong(came: np.ndarray, expected: np.ndarray) -> str:
    places = np.flatnonzero(came != expected)
    at = places[0]
    return f"{len(places)} of {len(came)} bytes, first {at}: {came[at]:#x}, not {expected[at]:#x}"


def content(number: int, rank: int, target: int, nbytes: int) -> np.ndarray:
    """What a rank sends to another one in a call: the same wherever it is worked out."""
    seed = number * 1_000_003 + rank * 1009 + target
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


class Given:
    """Of one call on one rank. wait: as World's; the returned function waits, and checks what has come."""

    def __init__(self, world: Any, number: int, wait: bool = True) -> None:
        self.world, self.rank, self.size = world, world.rank, world.size
        self.number, self.wait = number, wait

    def content(self, rank: int, target: int, nbytes: int) -> np.ndarray:
        return content(self.number, rank, target, nbytes)

    def end(self, call: Any, what: str, *came: tuple[Guarded, np.ndarray]) -> Callable[[], None]:
        def finish() -> None:
            call.wait()
            assert call.done
            for guarded, expected in came:
                guarded.check(expected, f"{what} {self.number} on rank {self.rank}")

        return finish

    def broadcast(self, nbytes: int, root: int) -> Callable[[], None]:
        here, sent = Guarded(nbytes), self.content(root, 0, nbytes)
        if self.rank == root:
            here.array[:] = sent
        call = self.world.broadcast(here.array, root, wait=self.wait)
        return self.end(call, "broadcast", (here, sent))

    def scatter(self, nbytes: int, root: int) -> Callable[[], None]:
        sizes = uneven(nbytes, self.size, self.number)
        out = Guarded(sizes[self.rank])
        expected = self.content(root, self.rank, sizes[self.rank])
        parts: Any = None
        if self.rank == root:
            parts = [self.content(root, rank, sizes[rank]) for rank in range(self.size)]
        call = self.world.scatter(out.array, parts, root, wait=self.wait)
        return self.end(call, "scatter", (out, expected))

    def gather(self, nbytes: int, root: int) -> Callable[[], None]:
        sizes = uneven(nbytes, self.size, self.number)
        array = self.content(self.rank, root, sizes[self.rank])
        if self.rank != root:
            call = self.world.gather(None, array, root, wait=self.wait)
            return self.end(call, "gather")
        out = Guarded(sum(sizes))
        expected = [self.content(rank, root, sizes[rank]) for rank in range(self.size)]
        call = self.world.gather(out.array, array, root, counts=sizes, wait=self.wait)
        return self.end(call, "gather", (out, np.concatenate(expected)))

    def all_gather(self, nbytes: int, root: int) -> Callable[[], None]:
        sizes = uneven(nbytes, self.size, self.number)
        array = self.content(self.rank, 0, sizes[self.rank])
        out = Guarded(sum(sizes))
        expected = [self.content(rank, 0, sizes[rank]) for rank in range(self.size)]
        call = self.world.all_gather(out.array, array, counts=sizes, wait=self.wait)
        return self.end(call, "all_gather", (out, np.concatenate(expected)))

    def all_to_all(self, nbytes: int, root: int) -> Callable[[], None]:
        sizes = [uneven(nbytes, self.size, self.number + rank) for rank in range(self.size)]
        parts = [self.content(self.rank, rank, sizes[self.rank][rank]) for rank in range(self.size)]
        outs = [Guarded(sizes[rank][self.rank]) for rank in range(self.size)]
        call = self.world.all_to_all([out.array for out in outs], parts, wait=self.wait)
        came = [
            (out, self.content(rank, self.rank, sizes[rank][self.rank]))
            for rank, out in enumerate(outs)
        ]
        return self.end(call, "all_to_all", *came)

    def send_recv(self, nbytes: int, root: int) -> Callable[[], None]:
        step = 1 + root % max(1, self.size - 1)
        to, source = (self.rank + step) % self.size, (self.rank - step) % self.size
        out, array = Guarded(nbytes), self.content(self.rank, to, nbytes)
        call = self.world.send_recv(to=to, array=array, from_=source, out=out.array, wait=self.wait)
        return self.end(call, "send_recv", (out, self.content(source, self.rank, nbytes)))


KINDS = ("broadcast", "scatter", "gather", "all_gather", "all_to_all", "send_recv")


def uneven(nbytes: int, size: int, number: int) -> list[int]:
    """The sizes of a call's blocks by rank: each about nbytes, and every seventh call's equal."""
    if number % 7 == 0:
        return [nbytes] * size
    generator = np.random.default_rng(number)
    return [int(each) for each in generator.integers(nbytes - nbytes // 4, nbytes + 1, size)]

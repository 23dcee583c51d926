"""Guarantee 1: a completed transfer has placed its bytes, all of them and no others."""

from collections.abc import Sequence

import numpy as np
import pytest
from support.arrays import HOST, KINDS, block, pattern
from support.keeper import keep

SIZES = [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 65537, (3 << 20) + 5]
OFFSETS = [0, 1, 3, 7, 8, 63, 64, 4095]  # bytes from an aligned-looking start


def random_layouts(count: int, seed: int) -> list[tuple[int, int, int]]:
    """(nbytes, our offset, their offset), sizes spread evenly over the magnitudes."""
    rng = np.random.default_rng(seed)
    sizes = (2 ** rng.uniform(0, 18, count)).astype(int)
    return [(int(n), *map(int, rng.integers(0, 130, 2))) for n in sizes]


def fixed_layouts() -> list[tuple[int, int, int]]:
    turns = range(len(SIZES))
    return [(SIZES[i], OFFSETS[i % 8], OFFSETS[(3 * i + 1) % 8]) for i in turns]


LAYOUTS = fixed_layouts() + random_layouts(20, seed=1)


def test_every_byte_is_placed_and_fetched_and_the_source_is_free(remote, kind):
    with remote(keep) as s:
        for seed, (nbytes, ours, theirs) in enumerate(LAYOUTS):
            source, target = block(s.ep, kind, nbytes, ours), s.keeper.block(kind, nbytes, theirs)
            source.bytes[:] = pattern(nbytes, seed)
            transfer = s.peer.write(source.memory, target.remote)
            assert transfer.wait() is None
            source.bytes[:] = 0  # completed: ours again
            assert transfer.done
            assert transfer.nbytes == nbytes
            np.testing.assert_array_equal(target.show(), pattern(nbytes, seed))
            source.check_guards()
            skipped = min(theirs, nbytes)
            back = block(s.ep, kind, nbytes - skipped, ours)
            s.peer.read(target.remote[skipped:], back.memory).wait()
            np.testing.assert_array_equal(back.bytes, pattern(nbytes, seed)[skipped:])
            back.check_guards()


@pytest.mark.parametrize("theirs", dict.fromkeys([*KINDS, HOST]))
def test_memory_of_one_kind_reaches_memory_of_any_other(process, kind, theirs):
    with process(keep) as s:
        source, target = block(s.ep, kind, 100_003, 5), s.keeper.block(theirs, 100_003, 9)
        back = block(s.ep, kind, 100_003, 11)
        source.bytes[:] = pattern(100_003)
        s.peer.write(source.memory, target.remote).wait()
        s.peer.read(target.remote, back.memory).wait()
        np.testing.assert_array_equal(back.bytes, source.bytes)
        back.check_guards()
        target.show()


def scattered(seed: int, pieces: int) -> list[tuple[int, int, int]]:
    """(from, to, nbytes) of pieces that do not overlap, in random order at both ends."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 3000, pieces)
    starts = [np.zeros(pieces, int), np.zeros(pieces, int)]
    for start in starts:
        order = rng.permutation(pieces)
        gaps = rng.integers(0, 9, pieces)
        start[order] = np.cumsum(sizes[order] + gaps) - sizes[order]
    return [(int(a), int(b), int(n)) for a, b, n in zip(*starts, sizes, strict=True)]


def test_write_many_places_and_read_many_fetches_each_piece(remote, kind):
    there, back = scattered(seed=3, pieces=700), scattered(seed=4, pieces=700)
    total = 700 * 3010
    with remote(keep) as s:
        source, target = block(s.ep, kind, total, 3), s.keeper.block(kind, total, 1)
        source.bytes[:] = pattern(total)
        expected = target.show()
        pairs = [(source.memory[a : a + n], target.remote[b : b + n]) for a, b, n in there]
        transfer = s.peer.write_many(pairs)
        transfer.wait()
        assert transfer.nbytes == sum(n for _, _, n in there)
        for a, b, n in there:
            expected[b : b + n] = source.bytes[a : a + n]
        np.testing.assert_array_equal(target.show(), expected)
        sink = block(s.ep, kind, total, 2)
        fetched = sink.bytes.copy()
        s.peer.read_many(
            [(target.remote[a : a + n], sink.memory[b : b + n]) for a, b, n in back]
        ).wait()
        for a, b, n in back:
            fetched[b : b + n] = expected[a : a + n]
        np.testing.assert_array_equal(sink.bytes, fetched)
        sink.check_guards()


class Part:
    """Rows and columns, evenly apart, of any flat array of NumPy's or zerohop's."""

    def __init__(self, rng: np.random.Generator, rows: int, columns: int, nbytes: int) -> None:
        step, gap = int(rng.choice([1, 1, 2, 3])), int(rng.integers(0, 70))
        self._flip, self._rows, self._step = int(rng.choice([1, 1, -1])), rows, step
        self._columns, self._width = columns, columns * step + gap
        self._begin = int(rng.integers(0, nbytes - rows * self._width + 1))

    def of(self, flat):
        end = self._begin + self._rows * self._width
        rows = flat[self._begin : end].reshape(self._rows, self._width)
        return rows[:, : self._columns * self._step : self._step][:: self._flip, :: self._flip]


def test_random_parts_of_two_arrays(remote, kind):
    """Sizes, offsets, alignments, strides and directions at random; no byte beside them changes."""
    rng, nbytes = np.random.default_rng(6), 400_000
    with remote(keep) as s:
        ours, theirs = block(s.ep, kind, nbytes, 3), s.keeper.block(kind, nbytes, 9)
        here, there = pattern(nbytes), theirs.show()
        ours.bytes[:] = here
        for number in range(40):
            shape = int(2 ** rng.uniform(0, 6)), int(2 ** rng.uniform(0, 10))
            mine, yours = Part(rng, *shape, nbytes), Part(rng, *shape, nbytes)
            near, far = mine.of(ours.memory), yours.of(theirs.remote)
            if number % 2:
                s.peer.read(far, near).wait()
                mine.of(here)[...] = yours.of(there)
            else:
                s.peer.write(near, far).wait()
                yours.of(there)[...] = mine.of(here)
        np.testing.assert_array_equal(theirs.show(), there)
        np.testing.assert_array_equal(ours.bytes, here)
        ours.check_guards()


class MadeWhenAsked(Sequence):
    """A sequence that keeps nothing: each item is made anew and is the caller's alone."""

    def __init__(self, make, count):
        self._make, self._count = make, count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._make(index)


LAZY = {
    "generator": lambda make, count: (make(n) for n in range(count)),
    "sequence": MadeWhenAsked,
    "map": lambda make, count: map(make, range(count)),
}


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("lazy", LAZY)
def test_write_many_takes_pairs_that_are_made_when_asked_for(remote, lazy, registered):
    """Nobody but the transfer holds the arrays, their registrations and the remote slices."""
    with remote(keep) as s:
        count, nbytes = 300, 5000
        target = s.keeper.array("empty", np.zeros((count, nbytes), np.uint8))

        def make(number):
            values = np.full(nbytes, number % 251, np.uint8)
            return (s.ep.register(values) if registered else values, target.remote[number])

        transfer = s.peer.write_many(LAZY[lazy](make, count))
        filler = [
            np.full(nbytes, 255, np.uint8) for _ in range(count)
        ]  # takes freed memory, if any
        transfer.wait()
        expected = np.arange(count) % 251
        assert (target.show() == expected[:, None]).all()
        assert len(filler) == count


def test_one_bad_pair_of_write_many_writes_nothing(remote):
    with remote(keep) as s:
        source, target = block(s.ep, "numpy", 64), s.keeper.block("numpy", 64)
        source.bytes[:] = 1
        before = target.show()
        pairs = [(source.memory[:8], target.remote[:8]), (source.memory[:8], target.remote[:9])]
        with pytest.raises(ValueError, match="shape"):
            s.peer.write_many(pairs)
        s.peer.read(target.remote, source.memory).wait()  # whatever was posted has been done
        np.testing.assert_array_equal(target.show(), before)

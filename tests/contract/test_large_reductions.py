"""Reductions in steps: arrays of several chunks, inboxes in every state, and calls that stop after each step."""

import numpy as np
import pytest
from support.elsewhere import put_elsewhere
from zerohop._world.deadline import Deadline
from zerohop.collectives import desk
from zerohop.collectives.lines import EAGER, Lines


def beyond_chunks(world, dtype="int32"):
    rank, size = world.rank, world.size
    slices = size * EAGER  # one of each rank
    chunk = (4 << 20) // slices * slices  # as in staged_reduction.cpp
    for number, nbytes in enumerate((chunk - 8, chunk, chunk + 8, 2 * chunk + EAGER + 24)):
        counting = np.arange(nbytes // np.dtype(dtype).itemsize, dtype=dtype)
        expected = counting * sum(range(1, size + 1))
        for out in (None, np.empty_like(counting)):
            here = counting * (rank + 1)
            world.all_reduce(here, out=out)
            assert (expected == (here if out is None else out)).all()
            assert out is None or (here == counting * (rank + 1)).all()
        here, root = counting * (rank + 1), number % size
        world.reduce(here, root)
        assert (here == (expected if rank == root else counting * (rank + 1))).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.timeout(120)
def test_arrays_of_several_chunks(rank_threads, size):
    rank_threads(beyond_chunks, size, deadline=100.0)
    rank_threads(beyond_chunks, size, "float64", deadline=100.0)


def after_small_ones(world):
    """Messages of a lap that small ones have begun, up to its end."""
    for small in range(66):
        assert world.all_reduce(1) == world.size
        here = np.full((3 * world.size * EAGER + 40) // 4, small, "f4")
        world.all_reduce(here)
        assert (here == small * world.size).all()
        for _ in range(small):
            world.all_reduce(1)


@pytest.mark.parametrize("size", [2, 3])
def test_large_arrays_after_small_ones(rank_threads, size):
    rank_threads(after_small_ones, size)


def test_a_long_call_stops_for_signals_and_goes_on(rank_threads, monkeypatch):
    """After each step here."""
    stops = []
    hear = Lines.hear
    monkeypatch.setattr(desk, "SLICE", 0.0)
    monkeypatch.setattr(Deadline, "slice", property(lambda deadline: 0.0))
    monkeypatch.setattr(Lines, "hear", lambda *given: stops.append(1) or hear(*given))
    rank_threads(beyond_chunks, 3)
    assert len(stops) > 50


@pytest.mark.parametrize("elsewhere", [0, 2])
def test_ranks_with_and_without_a_gpu_reduce_chunks_together(rank_threads, monkeypatch, elsewhere):
    put_elsewhere(monkeypatch, elsewhere)
    rank_threads(beyond_chunks, 3)

"""Reductions among ranks of several hosts: every element is what NumPy makes of it in the documented order, bit for bit."""

import os
import signal

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt
from support.elsewhere import put_elsewhere
from support.hosts import LAYOUTS, put_on_hosts, reduced_by_hosts, size_of
from support.ranks import close, results, worlds
from support.reduced import FACTOR, given, reduced, same
from zerohop.collectives import table
from zerohop.collectives.lines import EAGER
from zerohop.collectives.table import Row

ALGORITHMS = ("flat", "hosts", "hosts pairs", "flat pairs", "flat whole", "hosts whole", "hosts pairs whole", "flat pairs whole")
SLICES = (EAGER, 4 * EAGER)  # along with their headers, and written
SIZES = (0, 4, 1020, EAGER, 3 * EAGER + 4, 33 * EAGER + 12)
TYPES = (("sum", "float32"), ("avg", "float16"), ("premul_sum", "complex64"), ("max", "bfloat16"), ("prod", "int16"), ("land", "float64"))


def every_call(world, layout, algorithm, op, dtype, count, number):
    rank, size = world.rank, world.size
    more = {"factor": FACTOR} if op == "premul_sum" else {}
    arrays = [given(each, count, dtype, number) for each in range(size)]
    what = f"{op} of {count} {dtype}, {layout}, {algorithm}"
    expected = reduced_by_hosts(op, arrays, layout, algorithm)
    here = arrays[rank].copy()
    world.all_reduce(here, op, **more)
    same(here, expected, f"all_reduce, {what}")
    out = np.zeros_like(here)
    here = arrays[rank].copy()
    world.all_reduce(here, op, out=out, wait=False, **more).wait()
    same(out, expected, f"all_reduce to out, {what}")
    same(here, arrays[rank], f"input of all_reduce, {what}")
    if "pairs" in algorithm:  # not to a root
        expected = reduced_by_hosts(op, arrays, layout, algorithm.replace(" pairs", ""))
    for root in {0, number % size, size - 1}:
        world.reduce(here, root, op, out=out, **more)
        same(here, arrays[rank], f"input of reduce, {what}")
        if rank == root:
            same(out, expected, f"reduce, {what}")
    if op != "avg":
        world.scan(here, op, **more)
        same(here, reduced(op, arrays[: rank + 1]), f"scan, {what}")


def every_type(world, layout, algorithm, sizes):
    for number, (op, dtype) in enumerate(TYPES):
        for nbytes in sizes:
            count = nbytes // given(0, 1, dtype).itemsize
            every_call(world, layout, algorithm, op, dtype, count, number)


@pytest.mark.parametrize("slice_", SLICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.timeout(120)
def test_every_algorithm(rank_threads, monkeypatch, layout, algorithm, slice_):
    put_on_hosts(monkeypatch, layout, Row(None, None, None, algorithm, slice_))
    size = size_of(layout)
    rank_threads(every_type, size, layout, algorithm, SIZES[:-1], deadline=100.0)


def large(world, layout, algorithm):
    for nbytes in (SIZES[-1], (9 << 20) + 8):
        every_call(world, layout, algorithm, "sum", "float32", nbytes // 4, nbytes)


@pytest.mark.parametrize("slice_", SLICES)
@pytest.mark.parametrize("algorithm", ["flat", "hosts", "hosts pairs"])
@pytest.mark.parametrize("layout", ["2x2", "3+2+1"])
@pytest.mark.timeout(120)
def test_large_arrays(rank_threads, monkeypatch, layout, algorithm, slice_):
    put_on_hosts(monkeypatch, layout, Row(None, None, None, algorithm, slice_))
    rank_threads(large, size_of(layout), layout, algorithm, deadline=100.0)

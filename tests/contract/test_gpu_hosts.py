"""Reductions in the memory of GPUs: with a stand-in for the kernel, and host arrays for a GPU's. tests/gpu has the real one."""

import ctypes
import threading

import numpy as np
import pytest
import zerohop as zh
from support.hosts import put_on_hosts
from support.reduced import given, reduced, same
from zerohop import _core
from zerohop.collectives import copies
from zerohop.collectives.copies import Copier
from zerohop.collectives.desk import Desk
from zerohop.collectives.lines import EAGER


class Standin:
    """Of one rank."""

    def __init__(self):
        self.calls = []

    def reduce(self, op, dtype, factor, out, nbytes, inputs, timeout):
        self.calls.append((nbytes, len(inputs)))
        assert timeout > 0

        def at(address):
            return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)

        _core.reduce(op, dtype, factor, at(out), [at(each) for each in inputs])


@pytest.fixture
def reducers(monkeypatch):
    """By thread, hence by rank."""
    here = threading.local()

    def reducer(copier, device):
        assert device == "cpu"
        if not hasattr(here, "made"):
            here.made = Standin()
        return here.made

    monkeypatch.setattr(Copier, "reducer", reducer)
    monkeypatch.setattr(Desk, "at_once", lambda *_: None)
    return here


def each_call(world, reducers, count):
    rank, size = world.rank, world.size
    for dtype, op in (("float16", "avg"), ("float32", "sum"), ("complex64", "prod")):
        arrays = [given(each, count * size, dtype) for each in range(size)]
        out = np.zeros(count, arrays[0].dtype)
        world.reduce_scatter(out, arrays[rank], op)
        mine = [each[rank * count : (rank + 1) * count] for each in arrays]
        same(out, reduced(op, mine), "reduce_scatter")
        here = arrays[rank][:10].copy()
        world.all_reduce(here, op)
        same(here, reduced(op, [each[:10] for each in arrays]), "all_reduce")
    return reducers.made.calls


@pytest.mark.parametrize("count", [5, EAGER])
def test_blocks_are_reduced_where_they_arrive(rank_threads, monkeypatch, reducers, count):
    put_on_hosts(monkeypatch, "2x2")
    monkeypatch.setattr(_core.Topology, "is_direct", lambda topology, nbytes: True)
    for calls in rank_threads(each_call, 4, reducers, count):
        assert len(calls) >= 6
        assert all(inputs == 4 for _, inputs in calls)
        assert sum(nbytes for nbytes, _ in calls) == (count + 10) * (2 + 4 + 8)


class Alone:
    """A stand-in for a World of one rank."""

    size = 1
    endpoint = property(lambda self: self)

    def empty(self, nbytes, *, device):
        return device


def test_a_gpu_without_kernels_is_asked_once(monkeypatch):
    asked = []

    def refuse(endpoint, memory):
        asked.append(memory)
        raise zh.RouteUnavailable("there was no nvcc")

    refuse.INPUTS = _core.GpuReducer.INPUTS
    monkeypatch.setattr(copies._core, "GpuReducer", refuse)
    copier = Copier(Alone())
    assert [copier.reducer(each) for each in ("cpu", "cuda:0", "cuda:0")] == [None] * 3
    assert asked == ["cuda:0"]


def test_a_world_of_more_ranks_than_a_kernel_takes_reduces_on_its_hosts(monkeypatch):
    monkeypatch.setattr(Alone, "size", _core.GpuReducer.INPUTS + 1)
    assert Copier(Alone()).reducer("cuda:0") is None

"""Where a rank has no kernel that reduces. test_schedule.cpp has reductions in the memory of GPUs, tests/gpu the real ones."""

import zerohop as zh
from zerohop import _core
from zerohop.collectives import copies
from zerohop.collectives.copies import Copier


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

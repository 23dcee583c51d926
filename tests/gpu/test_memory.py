"""Kinds and identities of GPU memory, and its export as a dma-buf, on a real GPU."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import zerohop as zh
from device_memory import GRANULE, managed, pinned, plain, pooled, reserve, tensor
from zerohop import _core

PLAIN = "cudaMalloc memory"
VMM = "virtual memory (cuMemCreate)"
POOL = "memory of a stream-ordered pool (cudaMallocAsync)"
MANAGED = "managed memory (cudaMallocManaged)"
PINNED = "pinned host memory"
PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture(scope="module", autouse=True)
def context():
    torch.empty(1, device="cuda:0")
    yield
    torch.cuda.synchronize()


@contextmanager
def exported(array: Any) -> Iterator[tuple[int, int]]:
    """Offset and size of the array's dma-buf."""
    fd, offset = _core.gpu_export_dmabuf(array)
    try:
        yield offset, os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def check_export(array: Any, begin: int, nbytes: int) -> None:
    with exported(array) as (offset, size):
        assert offset == begin % PAGE
        assert size == (offset + nbytes + PAGE - 1) // PAGE * PAGE


def test_what_the_gpu_says(rows):
    facts = _core.gpu_facts(0)
    rows.add("facts", **facts)
    assert facts["device"] == "cuda:0"
    assert facts["name"] == torch.cuda.get_device_name(0)
    major, minor = torch.cuda.get_device_capability(0)
    assert facts["compute"] == 10 * major + minor
    assert facts["gpudirect"]
    assert facts["dmabuf"]  # the open kernel modules
    assert facts["write_order"] == "kept" or facts["writes_ordering"] < 100
    assert facts["bar1_nbytes"] is None or facts["bar1_nbytes"] >= 1 << 28


@pytest.mark.parametrize("nbytes", [1000, 1 << 20, 256 << 20])
def test_cudamalloc(nbytes):
    with plain(nbytes) as address:
        array = tensor(address, nbytes)
        memory = _core.gpu_memory(array)
        assert memory["kind"] == PLAIN
        assert (memory["begin"], memory["end"]) == (address, address + nbytes)
        assert memory["gpudirect_capable"]
        assert memory["legacy_ipc_capable"]
        check_export(array, address, nbytes)
        part = array[nbytes // 2 : nbytes // 2 + 100]
        assert _core.gpu_memory(part)["buffer_id"] == memory["buffer_id"]
        check_export(part, address + nbytes // 2, 100)


def test_two_small_allocations_in_one_mapping():
    with plain(1000) as first, plain(1000) as second:
        one, other = (_core.gpu_memory(tensor(address, 1000)) for address in (first, second))
        assert one["buffer_id"] != other["buffer_id"]
        assert other["begin"] == second


def test_several_chunks_are_exported_in_one_piece():
    with reserve(4) as reservation:
        for chunk in range(3):
            reservation.map(chunk)
        begin = reservation.address + GRANULE - 5000
        array = tensor(begin, GRANULE + 10000)
        memory = _core.gpu_memory(array)
        assert memory["kind"] == VMM
        assert memory["gpudirect_capable"]
        assert len(memory["chunks"]) == 3
        assert len({chunk[2] for chunk in memory["chunks"]}) == 3
        check_export(array, begin, GRANULE + 10000)


def test_a_hole_is_refused():
    with reserve(3) as reservation:
        reservation.map(0)
        reservation.map(2)
        array = tensor(reservation.address, 3 * GRANULE)
        with pytest.raises(zh.RegistrationError, match="not mapped at"):
            _core.gpu_memory(array)
        with pytest.raises(zh.CudaError) as caught:
            _core.gpu_export_dmabuf(array)
        assert caught.value.code == 1


def test_chunks_without_the_flag_are_not_open_to_adapters():
    with reserve(1) as reservation:
        reservation.map(0, gpudirect=False)
        assert not _core.gpu_memory(tensor(reservation.address, GRANULE))["gpudirect_capable"]


def test_chunks_of_different_properties_together(rows):
    with reserve(2) as reservation:
        reservation.map(0, gpudirect=True)
        reservation.map(1, gpudirect=False)
        try:
            check_export(tensor(reservation.address, 2 * GRANULE), reservation.address, 2 * GRANULE)
            code = 0
        except zh.CudaError as error:
            code = error.code
        rows.add("export of chunks with and without the GPUDirect flag", cuda_error=code)


def same_address_new_id(allocate: Callable[[], Any], nbytes: int) -> tuple[int, int]:
    """How often the address came again, and how often with a new buffer id."""
    seen: dict[int, set[int]] = {}
    again = fresh = 0
    for _ in range(8):
        with allocate() as address:
            buffer_id = _core.gpu_memory(tensor(address, nbytes))["buffer_id"]
        if address in seen:
            again += 1
            fresh += buffer_id not in seen[address]
        seen.setdefault(address, set()).add(buffer_id)
    return again, fresh


@pytest.mark.parametrize("allocate", [plain, pooled])
def test_memory_at_the_same_address_has_another_id(allocate, rows):
    again, fresh = same_address_new_id(lambda: allocate(32 << 20), 32 << 20)
    rows.add(f"buffer id after free and {allocate.__name__} at the same address", again=again)
    assert again > 0
    assert fresh == again


def test_a_chunk_mapped_anew_has_another_id():
    with reserve(3) as reservation:
        for chunk in range(3):
            reservation.map(chunk)
        array = tensor(reservation.address, 3 * GRANULE)
        before = _core.gpu_memory(array)["chunks"]
        reservation.unmap(1)
        reservation.map(1)
        after = _core.gpu_memory(array)["chunks"]
        assert (before[0], before[2]) == (after[0], after[2])
        assert before[1][:2] == after[1][:2]
        assert before[1][2] != after[1][2]


@pytest.mark.parametrize(
    ("allocate", "kind"), [(pooled, POOL), (managed, MANAGED), (pinned, PINNED)]
)
def test_kinds_that_no_adapter_reaches(allocate, kind):
    with allocate(1 << 20) as address:
        memory = _core.gpu_memory(tensor(address, 1 << 20))
        assert memory["kind"] == kind
        assert not memory["gpudirect_capable"]


def test_an_array_of_the_host_is_not_cudas():
    assert _core.gpu_memory(torch.zeros(100))["kind"] == "memory unknown to CUDA"


def test_cupy():
    import cupy

    array = cupy.zeros(1 << 20, dtype="float32")
    assert _core.gpu_memory(array)["kind"] == PLAIN
    check_export(array, array.data.ptr, array.nbytes)
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        array = cupy.zeros(1 << 20, dtype="float32")
        assert _core.gpu_memory(array)["kind"] == POOL


def test_the_software_hca_stages_gpu_memory_and_says_why_not_otherwise():
    with zh.Endpoint("soft0") as endpoint:
        assert endpoint.register(torch.zeros(1000, device="cuda:0")).registration == "staged"
        with pytest.raises(zh.RegistrationError, match="through dma-buf"):
            endpoint.register(torch.zeros(1000, device="cuda:0"), registration="dmabuf")
        with pytest.raises(zh.RegistrationError, match="peermem"):
            endpoint.register(torch.zeros(1000, device="cuda:0"), registration="peermem")
        assert endpoint.register(torch.zeros(1000).pin_memory()).registration == "host"

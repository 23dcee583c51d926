"""Memory that zerohop makes on a GPU: an array of the frameworks, exportable, and given back."""

import gc
import os
import time
from typing import Any

import pytest
import torch
import zerohop as zh
from zerohop import _core

MIB = 1 << 20
PATIENCE = 20.0  # seconds: for what must happen


@pytest.fixture
def endpoint():
    with zh.Endpoint("soft0", timeout=20.0) as made:
        yield made


def free_bytes() -> int:
    return int(torch.cuda.mem_get_info(0)[0])


def wait_until_free(nbytes: int) -> None:
    end = time.monotonic() + PATIENCE
    while free_bytes() < nbytes and time.monotonic() < end:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # of what sums and the like have made
    assert free_bytes() >= nbytes


def use(array: Any) -> None:
    array.fill_(7)
    assert int(array.sum()) == 7 * array.numel()


def test_it_is_zeroed_and_torch_shares_its_bytes(endpoint):
    memory = endpoint.empty((300, 7), "float32", device="cuda:0")
    array = torch.from_dlpack(memory)
    assert (array.device.type, array.device.index) == ("cuda", 0)
    assert (tuple(array.shape), array.dtype) == ((300, 7), torch.float32)
    assert array.data_ptr() == memory.address
    assert not bool(array.any())
    array += 3
    assert bool((torch.from_dlpack(memory) == 3).all())
    assert torch.from_dlpack(memory[5:9, 2]).tolist() == [3.0] * 4


def test_on_another_stream_it_holds_what_the_default_stream_writes(endpoint):
    memory = endpoint.empty(8 * MIB, device="cuda:0")
    for value in range(1, 10):
        torch.cuda._sleep(20_000_000)
        torch.from_dlpack(memory).fill_(value)
        with torch.cuda.stream(torch.cuda.Stream()):
            seen = torch.from_dlpack(memory)
            assert bool((seen == value).all())


def test_cupy_shares_its_bytes(endpoint):
    import cupy

    memory = endpoint.empty(1000, "int64", device="cuda:0")
    array = cupy.from_dlpack(memory)
    assert array.data.ptr == memory.address
    array += 1
    assert int(torch.from_dlpack(memory).sum()) == 1000


def test_numpy_gets_the_remedy(endpoint):
    import numpy as np

    with pytest.raises(BufferError, match="only host memory has a buffer"):
        memoryview(endpoint.empty(8, device="cuda:0"))
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(endpoint.empty(8, device="cuda:0"))


def test_it_is_exportable_and_open_to_adapters(endpoint):
    array = torch.from_dlpack(endpoint.empty(5 * MIB, device="cuda:0"))
    facts = _core.gpu_memory(array)
    assert facts["kind"] == "virtual memory (cuMemCreate)"
    assert facts["gpudirect_capable"]
    fd, offset = _core.gpu_export_dmabuf(array)
    try:
        assert os.lseek(fd, 0, os.SEEK_END) >= offset + 5 * MIB
    finally:
        os.close(fd)


def test_transfers_reach_it(endpoint):
    with zh.Endpoint("soft0", timeout=20.0, p2p=0) as there:
        peer = endpoint.connect(there.address)
        target = there.empty(5 * MIB, device="cuda:0")
        source = torch.randint(0, 256, (5 * MIB,), dtype=torch.uint8, device="cuda:0")
        transfer = peer.write(source, target.remote, notify=(1, 1))
        transfer.wait()
        there.wait_notify(1)
        assert transfer.route.kind == "staged"
        assert torch.equal(torch.from_dlpack(target), source)
        back = endpoint.empty(5 * MIB, device="cuda:0")
        peer.read(target.remote, back).wait()
        assert torch.equal(torch.from_dlpack(back), source)


def test_it_lives_as_long_as_its_arrays_and_no_longer(endpoint):
    use(torch.from_dlpack(endpoint.empty(MIB, device="cuda:0"))[10:20])  # CUDA loads kernels
    gc.collect()
    torch.cuda.empty_cache()
    before = free_bytes()
    memory = endpoint.empty(256 * MIB, device="cuda:0")
    assert free_bytes() <= before - 200 * MIB
    array = torch.from_dlpack(memory)[10:20]
    memory.close()
    del memory
    gc.collect()
    use(array)
    assert free_bytes() <= before - 200 * MIB
    del array
    wait_until_free(before)


def test_a_kernel_that_still_uses_it_keeps_it(endpoint):
    for value in range(20):
        memory = endpoint.empty(4 * MIB, device="cuda:0")
        array = torch.from_dlpack(memory)
        torch.cuda._sleep(20_000_000)
        array.fill_(value)
        total = array.sum(dtype=torch.int64)
        del array, memory
        gc.collect()
        assert int(total) == value * 4 * MIB


def test_memory_is_made_again_and_again(endpoint):
    """Each is more than half of what is free: it has to wait for the last one to go."""
    nbytes = int(free_bytes() * 0.6)
    for _ in range(4):
        memory = endpoint.empty(nbytes, device="cuda:0")
        memory.close()
        del memory


def test_what_cannot_be_had_is_refused_in_words(endpoint):
    with pytest.raises(zh.CudaError, match=r"no room for 1125899906842624 bytes on cuda:0") as full:
        endpoint.empty(1 << 50, device="cuda:0")
    assert full.value.code == 2
    with pytest.raises(zh.CudaError, match="cuda:77") as absent:
        endpoint.empty(1, device="cuda:77")
    assert absent.value.code == 101
    assert endpoint.empty((0, 3), device="cuda:0").nbytes == 0

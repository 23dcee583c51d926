"""Between the host's memory in one process and a GPU's in another of the same host: the GPU copies, from and to
page-locked memory.

The other process is on the same GPU, and on another one where the machine has two.
"""

import gc
import mmap
import os
import random
import re
import signal
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
import zerohop as zh
from far_side import POISON, THEIRS, FarSide, far_side

KINDS = ["numpy", "empty", "pinned"]  # of memory of the host
NBYTES = 1 << 22
GUARD = 4096


def host_array(ep: zh.Endpoint, kind: str, nbytes: int = NBYTES) -> tuple[zh.Memory, Any]:
    """Poisoned memory of the host, and a tensor of the same bytes."""
    if kind == "empty":
        memory = ep.empty(nbytes, "uint8")
        return memory, torch.from_dlpack(memory).fill_(POISON)
    tensor = torch.full((nbytes,), POISON, dtype=torch.uint8, pin_memory=kind == "pinned")
    return ep.register(tensor.numpy() if kind == "numpy" else tensor), tensor


def random_bytes(nbytes: int) -> Any:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8)


def gpu_bytes(nbytes: int) -> Any:
    return random_bytes(nbytes).to("cuda:0")


def page_locked(peer: zh.Peer) -> int:
    return peer.stats()["p2p"]["nbytes_page_locked"]


def page_locked_at_rest(peer: zh.Peer) -> int:
    """Once what earlier tests have dropped is let go of."""
    gc.collect()
    end = time.monotonic() + 10
    while page_locked(peer) > 0 and time.monotonic() < end:
        pass
    return page_locked(peer)


@pytest.fixture(params=THEIRS)
def far_gpu(request):
    """The peer's array is on a GPU."""
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side() as far:
        far.hold("cudaMalloc", NBYTES, request.param)
        yield ep, ep.connect(far.address), far


@pytest.fixture
def far_host():
    """The peer's array is in the host's memory."""
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side() as far:
        far.run(f"""
memory = ep.empty({NBYTES}, "uint8")
array = torch.from_dlpack(memory).fill_({POISON})
ep.share("array", memory)
""")
        yield ep, ep.connect(far.address), far


def far_content(far: FarSide) -> Any:
    return torch.from_numpy(far.run("answer = array.cpu().numpy().copy()"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_goes_to_a_gpu_and_back(far_gpu, kind):
    ep, peer, far = far_gpu
    there, wanted = peer["array"], torch.full((NBYTES,), POISON, dtype=torch.uint8)
    local, ours = host_array(ep, kind)
    chosen = random.Random(4)
    for _ in range(60):
        nbytes = min(chosen.choice([1, 3, 255, 4096, 65_537, 1 << 20]), NBYTES - 1)
        nbytes = max(1, nbytes - chosen.randrange(3))
        at, start = chosen.randrange(NBYTES - nbytes), chosen.randrange(NBYTES - nbytes)
        ours[start : start + nbytes] = random_bytes(nbytes)
        source = local[start : start + nbytes]
        transfer = peer.write(source, there[at : at + nbytes], require="p2p")
        transfer.wait()
        assert transfer.route.kind == "p2p"
        wanted[at : at + nbytes] = ours[start : start + nbytes]
    assert torch.equal(far_content(far), wanted)
    ours.fill_(7)
    peer.read(there[GUARD:-GUARD], local[GUARD:-GUARD], require="p2p").wait()
    assert torch.equal(ours[GUARD:-GUARD], wanted[GUARD:-GUARD])
    assert bool((ours[:GUARD] == 7).all())
    assert bool((ours[-GUARD:] == 7).all())


def test_every_byte_goes_to_the_host_and_back(far_host):
    ep, peer, far = far_host
    there, wanted = peer["array"], torch.full((NBYTES,), POISON, dtype=torch.uint8)
    ours = gpu_bytes(NBYTES)
    local, copy = ep.register(ours), ours.cpu()
    chosen = random.Random(5)
    for _ in range(60):
        nbytes = max(1, chosen.choice([1, 3, 255, 4096, 65_537, 1 << 20]) - chosen.randrange(3))
        at, start = chosen.randrange(NBYTES - nbytes), chosen.randrange(NBYTES - nbytes)
        transfer = peer.write(local[start : start + nbytes], there[at : at + nbytes], require="p2p")
        transfer.wait()
        assert transfer.route.device == "cuda:0"
        wanted[at : at + nbytes] = copy[start : start + nbytes]
    assert torch.equal(far_content(far), wanted)
    back = torch.full_like(ours, 7)
    peer.read(there[GUARD:-GUARD], ep.register(back)[GUARD:-GUARD], require="p2p").wait()
    assert torch.equal(back[GUARD:-GUARD].cpu(), wanted[GUARD:-GUARD])
    assert bool((back[:GUARD] == 7).all())
    assert bool((back[-GUARD:] == 7).all())


def test_the_routes_say_what_copies(far_gpu, far_host):
    ep, peer, far = far_gpu
    theirs = far.run("answer = str(array.device)")
    route = peer.route(host_array(ep, "numpy")[0], peer["array"])
    assert route.device == theirs  # both processes see the same GPUs
    expected = (
        f"both processes are on this host, and {theirs} copies between page-locked memory of the host, over its link "
        rf"to the CPU \(.+\), and the peer's {theirs}, which is the same GPU"
    )
    assert re.fullmatch(expected, route.reason), route.reason
    ep, peer, far = far_host
    route = peer.route(ep.register(gpu_bytes(NBYTES)), peer["array"])
    assert "cuda:0 copies between its memory and the peer's in pages of the host" in route.reason
    assert page_locked(peer) >= NBYTES


def test_read_only_arrays(far_gpu, tmp_path, rows):
    """Of NumPy, whose pages could be written, and pages that are mapped to be read only."""
    ep, peer, far = far_gpu
    values = random_bytes(NBYTES).numpy()
    file = tmp_path / "values"
    file.write_bytes(values.tobytes())
    fixed = values.copy()
    fixed.setflags(write=False)
    with file.open("rb") as opened:
        mapped = np.frombuffer(mmap.mmap(opened.fileno(), NBYTES, prot=mmap.PROT_READ), np.uint8)
        for name, array in (("numpy", fixed), ("file mapped read-only", mapped)):
            far.run(f"array.fill_({POISON})")
            local = ep.register(array)
            transfer = peer.write(local, peer["array"])
            transfer.wait()
            rows.add(
                "host_gpu", what=f"read-only: {name}", route=transfer.route.kind,
                reason=peer.route(local, peer["array"]).reason,
            )  # fmt: skip
            assert transfer.route.kind == "p2p" or name != "numpy"
            assert np.array_equal(far_content(far).numpy(), values)
            with pytest.raises(ValueError, match="read-only"):
                peer.read(peer["array"], local)
            local.close()


def test_pages_are_locked_as_long_as_the_memory_is_registered(far_gpu):
    ep, peer, _ = far_gpu
    there = peer["array"]
    small = np.zeros(
        20_000, np.uint8
    )  # two arrays on the same pages, neither begins or ends with one
    first, second = ep.register(small[100:9_000]), ep.register(small[9_000:19_000])
    before = page_locked_at_rest(peer)
    peer.write(first, there[:8_900], require="p2p").wait()
    peer.write(second, there[8_900:18_900], require="p2p").wait()
    assert before + 18_900 <= page_locked(peer) <= before + 32_768
    first.close()
    peer.write(second, there[:10_000], require="p2p").wait()
    second.close()
    for _ in range(50):  # each time registered, locked, and let go of
        peer.write(small, there[:20_000], require="p2p").wait()
    end = time.monotonic() + 10
    while page_locked(peer) > before:
        assert time.monotonic() < end
    pinned, _ = host_array(ep, "pinned")
    peer.write(pinned, there, require="p2p").wait()
    assert page_locked(peer) == before


def test_what_the_program_has_registered(far_gpu):
    ep, peer, far = far_gpu
    cudart: Any = torch.cuda.cudart()
    array = np.frombuffer(mmap.mmap(-1, NBYTES), np.uint8)
    array[:] = random_bytes(NBYTES).numpy()
    address = array.__array_interface__["data"][0]
    before = page_locked_at_rest(peer)
    assert int(cudart.cudaHostRegister(address, NBYTES, 0)) == 0
    local = ep.register(array)
    peer.write(local, peer["array"], require="p2p").wait()
    assert np.array_equal(far_content(far).numpy(), array)
    assert page_locked(peer) == before
    assert int(cudart.cudaHostUnregister(address)) == 0
    array[:] = 3
    peer.write(local, peer["array"], require="p2p").wait()
    assert page_locked(peer) == before + NBYTES
    assert far.run("answer = bool((array == 3).all())")


def test_a_part_that_the_program_has_registered(far_gpu):
    ep, peer, far = far_gpu
    cudart: Any = torch.cuda.cudart()
    array = np.frombuffer(mmap.mmap(-1, NBYTES), np.uint8)
    array[:] = 5
    middle = array.__array_interface__["data"][0] + NBYTES // 2
    assert int(cudart.cudaHostRegister(middle, 4096, 0)) == 0
    local = ep.register(array)
    assert "the program has page-locked a part" in peer.route(local, peer["array"]).reason
    peer.write(local, peer["array"]).wait()
    assert far.run("answer = bool((array == 5).all())")
    assert int(cudart.cudaHostUnregister(middle)) == 0


def test_plain_memory_of_the_peer_is_moved_from_its_side(far_host):
    ep, peer, far = far_host
    ours = gpu_bytes(NBYTES)
    local = ep.register(ours)
    far.run("plain = torch.zeros_like(array); other = ep.register(plain); ep.share('plain', other)")
    route = peer.route(local, peer["plain"])
    assert route.kind != "p2p"
    assert "plain memory of its process" in route.reason
    ep.share("gpu", local)
    far.run('back = ep.accept(); back.read(back["gpu"], other, require="p2p").wait()')
    assert torch.equal(torch.from_numpy(far.run("answer = plain.numpy()")), ours.cpu())


@pytest.mark.parametrize("kind", KINDS)
def test_streams(far_gpu, kind):
    """What a kernel writes to the host's memory by way of a stream goes on in that stream."""
    ep, peer, far = far_gpu
    local, ours = host_array(ep, kind)
    stream, source = torch.cuda.Stream(), torch.empty(NBYTES, dtype=torch.uint8, device="cuda:0")
    peer.write(local, peer["array"], require="p2p").wait()  # what takes long once is done
    far.begin_rounds(20)
    for value in range(1, 21):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            source.fill_(value)
            ours.copy_(source, non_blocking=True)
        peer.write(local, peer["array"], notify=(7, value), require="p2p", stream=stream)
        assert ep.wait_notify(8) == value
    assert far.finish() == [True] * 20


def test_a_notification_follows_what_a_kernel_had_still_to_write(far_host):
    ep, peer, far = far_host
    source = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda:0")
    local, there, stream = ep.register(source), peer["array"], torch.cuda.Stream()
    far.begin_rounds(40)
    for value in range(1, 41):
        on = stream if value % 2 else torch.cuda.default_stream()
        with torch.cuda.stream(on):
            torch.cuda._sleep(1_000_000)
            source.fill_(value)
        where = {"stream": stream} if value % 2 else {}
        peer.write(local, there, notify=(7, value), require="p2p", **where)
        assert ep.wait_notify(8) == value
    assert far.finish() == [True] * 40


@pytest.mark.parametrize("to_gpu", [True, False])
def test_kill_9_of_the_owner_in_the_middle(far_gpu, far_host, to_gpu):
    ep, peer, far = far_gpu if to_gpu else far_host
    there = peer["array"]
    local = host_array(ep, "numpy")[0] if to_gpu else ep.register(gpu_bytes(NBYTES))
    transfers = [peer.write(local, there) for _ in range(200)]
    os.kill(far.process.pid, signal.SIGKILL)
    began = time.monotonic()
    for transfer in transfers:
        with suppress(zh.PeerLost, zh.CudaError):
            transfer.wait(10)
    while peer.alive:
        with suppress(zh.PeerLost):
            peer.write(local, there).wait(10)
    assert time.monotonic() - began < 10
    torch.cuda.synchronize()
    assert float(torch.ones(10, device="cuda:0").sum()) == 10  # the GPU serves this process still


@pytest.mark.parametrize("to_gpu", [True, False])
def test_kill_9_of_the_writer_in_the_middle(to_gpu):
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep:
        if to_gpu:
            target = torch.full((NBYTES,), POISON, dtype=torch.uint8, device="cuda:0")
            memory = ep.register(target)
        else:
            memory, target = host_array(ep, "empty")
        ep.share("target", memory)
        with far_side() as far:
            far.begin(f"""
peer = ep.connect(bytes.fromhex({ep.address.hex()!r}))
there = peer["target"]
mine = ep.register(torch.full(({NBYTES},), 9, dtype=torch.uint8, device={"cpu" if to_gpu else "cuda:0"!r}))
peer.write(mine, there, notify=(1, 1), require="p2p").wait()
while True:
    last = peer.write(mine, there)
""")
            ep.wait_notify(1)
            far.process.kill()
            began = time.monotonic()
            with pytest.raises(zh.PeerLost):
                ep.wait_notify(2, timeout=10)
            assert time.monotonic() - began < 6
        memory.close()
        assert time.monotonic() - began < 12
        target.fill_(1)
        torch.cuda.synchronize()
        assert bool((target == 1).all())

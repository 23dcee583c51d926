"""Segments on GPUs: two ranks, on one GPU and on two where the machine has them, by p2p and by soft0."""

from pathlib import Path
from typing import Any

import pytest
import torch
import zerohop as zh
from zerohop.local import Link, Ranks

NBYTES = 1 << 20
ROUNDS = 200
POISON = 0xA5
APART = min(2, torch.cuda.device_count())  # GPUs that two ranks use at most


def work(link: Link, directory: Path, p2p: bool, gpus: int) -> None:
    gpu = f"cuda:{link.rank % gpus}"
    torch.zeros(1, device=gpu)
    with zh.World(directory, link.rank, 2, device="soft0", p2p=p2p, timeout=30.0) as world:
        segment = world.segment(3 * NBYTES, name="gpu", device=gpu)
        here = torch.from_dlpack(segment.local)
        assert (str(here.device), here.dtype, here.shape) == (gpu, torch.uint8, (3 * NBYTES,))
        world.barrier()
        play(segment, here, 1 - link.rank)
        move(segment, here, link.rank)
        world.barrier()
        of_floats(world, here.device)
        refuse(world, segment, here)
        world.barrier()


def play(segment: Any, here: Any, other: int) -> None:
    """Back and forth: the data is there before the notification."""
    for number in range(1, ROUNDS + 1):
        here[:NBYTES] = number % 251
        segment.write_notify(other, 0, NBYTES, slot=3, value=number, nbytes=NBYTES)
        assert segment.notify_waitsome(3, 1) == 3
        assert segment.notify_reset(3) == number
        came = here[NBYTES : 2 * NBYTES]
        assert bool((came == number % 251).all()), f"round {number}: {came.unique()}"
        came.fill_(POISON)
        segment.wait()
        torch.cuda.synchronize(here.device)
        segment.notify(other, 4, number)
        assert segment.notify_waitsome(4, 1) == 4
        assert segment.notify_reset(4) == number


def move(segment: Any, here: Any, rank: int) -> None:
    """Tensors elsewhere, parts of the own part, lists, reads, and this rank itself."""
    other = 1 - rank
    tensor = torch.arange(4096, dtype=torch.float32, device=here.device) + rank
    segment.write(other, tensor, 2 * NBYTES)
    here[:100] = 10 + rank
    segment.write_list_notify(
        other, [(here[:50], 2 * NBYTES + 20_000, None), (50, 2 * NBYTES + 30_000, 50)], 5
    )
    assert segment.notify_waitsome(5, 1) == 5
    segment.wait()
    came = here[2 * NBYTES : 2 * NBYTES + 16_384].view(torch.float32)
    assert torch.equal(came, torch.arange(4096, dtype=torch.float32, device=here.device) + other)
    for begin in (20_000, 30_000):
        assert bool((here[2 * NBYTES + begin :][:50] == 10 + other).all())
    segment.read_notify(other, 2 * NBYTES + 40_000, 2 * NBYTES, slot=6, nbytes=16_384)
    assert segment.notify_waitsome(6, 1) == 6
    segment.wait()
    assert torch.equal(here[2 * NBYTES + 40_000 :][:16_384].view(torch.float32), tensor)
    segment.write_notify(rank, 0, 2 * NBYTES + 60_000, slot=7, nbytes=100)
    assert segment.notify_waitsome(7, 1) == 7
    segment.wait()
    assert bool((here[2 * NBYTES + 60_000 :][:100] == 10 + rank).all())


def of_floats(world: Any, device: Any) -> None:
    """Parts of another dtype, made and given, and Memory of another one."""
    other = 1 - world.rank
    made = world.segment(48, name="made", device=str(device), dtype="float32")
    matrix = torch.zeros(3, 4, device=device, dtype=torch.bfloat16)
    given = world.segment(matrix, name="given")
    assert (made.local.dtype, made.local.shape, given.nbytes) == ("float32", (12,), 24)
    assert given.local is matrix
    floats = torch.from_dlpack(made.local)
    assert (floats.dtype, str(floats.device)) == (torch.float32, str(device))
    floats[:4] = world.rank + 1
    matrix[0] = world.rank + 1
    memory = world.endpoint.empty((2, 2), "float32", device)
    torch.from_dlpack(memory)[...] = 10 + world.rank
    world.barrier()
    made.write_notify(other, made.local[:4], 16, slot=0)
    made.write_notify(other, memory, 32, slot=1)
    given.write_notify(other, matrix[0], 8, slot=0)
    for segment, slot in ((made, 0), (made, 1), (given, 0)):
        assert segment.notify_waitsome(slot, 1) == slot
    assert floats.tolist() == [world.rank + 1] * 4 + [other + 1] * 4 + [10 + other] * 4
    assert matrix.tolist() == [[world.rank + 1] * 4, [other + 1] * 4, [0] * 4]
    made.write_notify(world.rank, memory, 16, slot=2)  # by another Endpoint
    assert made.notify_waitsome(2, 1) == 2
    assert floats[4:8].tolist() == [10 + world.rank] * 4
    made.wait()
    given.wait()


def refuse(world: Any, segment: Any, here: Any) -> None:
    other = 1 - world.rank
    with pytest.raises(zh.RouteUnavailable, match="keep counters in a host segment"):
        segment.atomic_fetch_add(other, 0, 1)
    with pytest.raises(ValueError, match="not a whole number of float32"):
        world.segment(9, name="floats", device=str(here.device), dtype="float32")
    counters = world.segment(8, name="counters", dtype="int64")
    counters.atomic_fetch_add(0, 0, 5)
    world.barrier()
    assert world.rank or counters.local.tolist() == [10]


@pytest.mark.parametrize("gpus", range(1, APART + 1))
@pytest.mark.parametrize("p2p", [True, False])
def test_two_ranks_exchange_memory_of_gpus(tmp_path, p2p, gpus):
    with Ranks(work, 2, tmp_path, p2p, gpus) as ranks:
        ranks.results()


def in_stream(link: Link, directory: Path, gpus: int) -> None:
    """By p2p the data and its notification are put into the program's stream; nobody waits on a CPU."""
    gpu = f"cuda:{link.rank % gpus}"
    torch.zeros(1, device=gpu)
    with zh.World(directory, link.rank, 2, device="soft0", timeout=30.0) as world:
        segment = world.segment(2 * NBYTES, device=gpu)
        here, other = torch.from_dlpack(segment.local), 1 - link.rank
        world.barrier()
        with torch.cuda.device(gpu), torch.cuda.stream(torch.cuda.Stream(gpu)) as _:
            stream = torch.cuda.current_stream(gpu)
            for number in range(1, 21):
                torch.cuda._sleep(2_000_000)
                here[:NBYTES] = number
                segment.write_notify(other, 0, NBYTES, NBYTES, slot=2, value=number, stream=stream)
                assert segment.notify_waitsome(2, 1) == 2
                assert segment.notify_reset(2) == number
                assert bool((here[NBYTES:] == number).all())
                segment.wait()
                world.barrier()


@pytest.mark.parametrize("gpus", range(1, APART + 1))
def test_a_write_follows_its_stream(tmp_path, gpus):
    with Ranks(in_stream, 2, tmp_path, gpus) as ranks:
        ranks.results()


def by_kernels(link: Link, directory: Path, gpus: int) -> None:
    """A kernel writes, notifies and waits, with a segment's offsets and slots."""
    import cupy
    import numpy as np
    from device_kernels import BLOCK, OK, Kernels

    gpu = link.rank % gpus
    torch.zeros(1, device=f"cuda:{gpu}")
    cupy.cuda.Device(gpu).use()
    with zh.World(directory, link.rank, 2, device="soft0", timeout=30.0) as world:
        segment = world.segment(2 * NBYTES, device=f"cuda:{gpu}")
        here, other = torch.from_dlpack(segment.local), 1 - link.rank
        here[:NBYTES] = 10 + link.rank
        here[NBYTES:] = POISON
        torch.cuda.synchronize(here.device)
        kernels, status = Kernels(), cupy.zeros(8, "int32")
        u32, u64, i32 = np.uint32, np.uint64, np.int32
        slot = u32(segment.slots[3])
        with (
            segment.device_queue(other) as queue,
            segment.device_board(device=f"cuda:{gpu}") as board,
        ):
            world.barrier()
            move = (i32(BLOCK), u64(NBYTES), u64(0), u64(NBYTES), slot, u32(7 + link.rank))
            kernels.put_notify_one(1, 256, queue.value, *move, status)
            assert int(status[0]) == OK
            kernels.wait_any(
                1, 256, board.value, i32(BLOCK), slot, u32(1), u64(10**10), i32(1), status
            )
            assert status.get()[:3].tolist() == [OK, int(slot), 7 + other]
            assert bool((here[NBYTES:] == 10 + other).all())
            world.barrier()


@pytest.mark.parametrize("gpus", range(1, APART + 1))
def test_kernels_use_a_segment(tmp_path, gpus):
    with Ranks(by_kernels, 2, tmp_path, gpus) as ranks:
        ranks.results()

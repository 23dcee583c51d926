"""Collectives of arrays on GPUs: two ranks on one GPU, and on two where the machine has them, by p2p and by soft0."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zerohop as zh
from zerohop.collectives.lines import EAGER
from zerohop.local import Link, Ranks

APART = min(2, torch.cuda.device_count())  # GPUs that two ranks use at most
COUNTS = (0, 1, 1001, EAGER, 3 << 20)  # elements
POISON = 77


def each_call(world: Any, place: Callable[[], str], count: int, dtype: torch.dtype) -> None:
    """place: where the next array lies."""

    def made(*values: int) -> Any:
        row = [torch.full((count,), value, dtype=dtype, device=place()) for value in values]
        return torch.stack([each.to(row[0].device) for each in row]) if len(row) > 1 else row[0]

    def shows(array: Any, *values: int) -> None:
        for row, value in zip(array.reshape(len(values), count), values, strict=True):
            assert bool((row == value).all()), f"{value}: {row.unique()}"

    rank, other = world.rank, 1 - world.rank
    array, out, both = made(10 + rank), made(POISON), made(POISON, POISON)
    world.broadcast(array, 1)
    shows(array, 11)
    parts = made(20 + 2 * rank, 21 + 2 * rank)
    world.scatter(out, parts if rank == 0 else None, 0)
    shows(out, 20 + rank)
    world.gather(both if rank == 1 else None, out, 1)
    if rank == 1:
        shows(both, 20, 21)
    world.all_gather(both, made(30 + rank))
    shows(both, 30, 31)
    world.all_to_all(both, parts)
    shows(both, 20 + rank, 22 + rank)
    world.send_recv(to=other, array=made(40 + rank), from_=other, out=out)
    shows(out, 40 + other)
    call = world.broadcast(out, 0, wait=False)
    call.wait()
    shows(out, 41)
    array = made(3 + rank)
    world.all_reduce(array)
    shows(array, 7)
    world.all_reduce(made(5 + rank), "max", out=out)
    shows(out, 6)
    world.reduce(array, 1)
    shows(array, 14 if rank else 7)
    array = made(3 + rank)
    world.scan(array)
    shows(array, 7 if rank else 3)
    world.reduce_scatter(out, made(rank + 1, rank + 3))
    shows(out, 7 if rank else 3)


def work(link: Link, directory: Path, gpus: int) -> None:
    """By p2p and by soft0, of GPUs alone, then of some arrays in the host's memory."""
    gpu = f"cuda:{link.rank % gpus}"
    torch.zeros(1, device=gpu)
    generator = np.random.default_rng(link.rank)
    for p2p in (True, False):
        options: dict[str, Any] = {"device": "soft0", "p2p": p2p, "timeout": 60.0}
        with zh.World(directory, link.rank, 2, name=f"p2p={p2p}", **options) as world:
            for dtype in (torch.uint8, torch.bfloat16, torch.float32):
                for count in COUNTS:
                    each_call(world, lambda: gpu, count, dtype)
                    each_call(world, lambda: ("cpu", gpu)[generator.integers(2)], count, dtype)
                link.report(f"{dtype} has arrived, p2p={p2p}")
            world.barrier()


@pytest.mark.parametrize("gpus", range(1, APART + 1))
def test_arrays_of_gpus_arrive(tmp_path, gpus):
    with Ranks(work, 2, tmp_path, gpus) as ranks:
        ranks.results()


def in_stream(link: Link, directory: Path, gpus: int) -> None:
    """What a stream was given before the call is sent, and not written over; what it is given afterwards finds what came."""
    gpu = f"cuda:{link.rank % gpus}"
    torch.zeros(1, device=gpu)
    with zh.World(directory, link.rank, 2, device="soft0", timeout=60.0) as world:
        with torch.cuda.device(gpu):
            stream: Any = torch.cuda.Stream(gpu)
            with torch.cuda.stream(stream):
                for count in (100, 1 << 20):
                    array = torch.zeros(count, device=gpu)
                    seen = torch.zeros(count, device=gpu)
                    for number in range(1, 11):
                        torch.cuda._sleep(5_000_000)
                        seen.copy_(
                            array
                        )  # of the round before: the next one must not come too early
                        if world.rank == number % 2:
                            array.fill_(number)
                        world.broadcast(array, number % 2, stream=stream)
                        assert bool((seen == number - 1).all())
                        assert bool((array == number).all())
        world.barrier()


@pytest.mark.parametrize("gpus", range(1, APART + 1))
def test_a_call_follows_a_stream(tmp_path, gpus):
    with Ranks(in_stream, 2, tmp_path, gpus) as ranks:
        ranks.results()

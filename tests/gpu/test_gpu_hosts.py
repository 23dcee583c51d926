"""Reductions of GPU arrays among ranks that pass for ranks of several hosts: the bits that host arrays get, in GPU memory all the way."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import zerohop as zh
from support.link import until
from zerohop import _core
from zerohop._world.all_ranks import AllRanks
from zerohop.collectives.lines import EAGER
from zerohop.collectives.reductions import OPS
from zerohop.collectives.table import Row
from zerohop.endpoint import Endpoint
from zerohop.local import Link, RankFailed, Ranks

GPUS = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
LAYOUTS = {"1+1": (0, 1), "2+1": (0, 0, 1), "2+2": (0, 0, 1, 1)}  # the host of each rank
ALGORITHMS = ("flat", "hosts", "hosts pairs", "hosts pairs whole")
SLICE = 2 * EAGER  # written
CALLS = ((torch.float32, "premul_sum"), (torch.bfloat16, "avg"), (torch.int32, "prod"))
COUNTS = (
    1001,
    200_003,
)  # elements: too few for slices that are written; in several pieces, the last one small
MANY = 16 << 20  # elements that are measured


def gpu_of(rank: int) -> str:
    return GPUS[rank % len(GPUS)]


def put_on_hosts(patch: pytest.MonkeyPatch, layout: str) -> None:
    place = LAYOUTS[layout]
    patch.setattr(AllRanks, "place", property(lambda ranks: f"host {place[ranks.rank]}"))
    patch.setattr(Endpoint, "copies", property(lambda endpoint: True))


def world_of(directory: Path, rank: int, layout: str, p2p: bool) -> Any:
    """p2p: otherwise nothing goes from GPU to GPU directly."""
    torch.cuda.set_device(gpu_of(rank))
    torch.zeros(1, device="cuda")
    return zh.World(directory, rank, len(LAYOUTS[layout]), device="soft0", p2p=p2p, timeout=20.0)


def by_threads(
    patch: pytest.MonkeyPatch, directory: Path, layout: str, p2p: bool, run: Callable[..., None]
) -> None:
    """Each rank runs run(world)."""
    put_on_hosts(patch, layout)

    def of_rank(rank: int) -> None:
        with world_of(directory, rank, layout, p2p) as world:
            run(world)
            world.barrier()

    ranks = range(len(LAYOUTS[layout]))
    with ThreadPoolExecutor(len(ranks)) as threads:
        list(threads.map(of_rank, ranks))


def given(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """In host memory."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex or dtype == torch.float32:
        return torch.randn(count, dtype=dtype, generator=generator)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    return torch.randint(-100, 100, (count,), generator=generator).to(dtype)


def same(came: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    came = came.cpu()
    assert bool((came.view(torch.uint8) == expected.view(torch.uint8)).all()), what


def every_call(world: Any, op: str, array: torch.Tensor, what: object, on_gpu: bool) -> None:
    """Of arrays in the host's memory first."""
    device = gpu_of(world.rank) if on_gpu else "cpu"
    more = {"factor": 0.3} if op == "premul_sum" else {}
    expected, root = array.clone(), len(array) % world.size
    world.all_reduce(expected, op, **more)
    mine = array.to(device, copy=True)
    world.all_reduce(mine, op, **more)
    same(mine, expected, ("all_reduce", what))
    mine, out = array.to(device, copy=True), torch.zeros_like(array, device=device)
    world.all_reduce(mine, op, out=out, wait=False, **more).wait()
    same(out, expected, ("all_reduce to out", what))
    same(mine, array, ("inputs", what))
    expected = torch.zeros_like(array)
    world.reduce(array, root, op, out=expected, **more)
    world.reduce(mine, root, op, out=out.zero_(), **more)
    same(out, expected, ("reduce", what))
    if op != "avg":
        world.scan(array, op, out=expected, **more)
        world.scan(mine, op, out=out, **more)
        same(out, expected, ("scan", what))
    parts = torch.cat([array] * world.size)
    world.reduce_scatter(expected, parts, op, **more)
    world.reduce_scatter(out, parts.to(device), op, **more)
    same(out, expected, ("reduce_scatter", what))


def every_algorithm(world: Any, on_host: int = -1) -> None:
    """on_host: a rank whose arrays are in the host's memory."""
    world.all_reduce(0)
    number = 0
    for algorithm in ALGORITHMS:
        world.barrier()
        world._desk.lines.go_by([Row(None, None, None, algorithm, SLICE)])
        for dtype, op in CALLS:
            for count in COUNTS:
                number += 1
                array = given(dtype, count, 10 * number + world.rank)
                what = (op, dtype, count, algorithm)
                every_call(world, op, array, what, world.rank != on_host)
    copier = world._desk._copier
    if world.rank != on_host:  # in GPU memory, not through the host's
        assert copier._reducers[gpu_of(world.rank)] is not None
        assert copier._kept[gpu_of(world.rank)].nbytes > SLICE


@pytest.mark.parametrize(
    ("layout", "p2p"), [("1+1", True), ("1+1", False), ("2+2", True), ("2+2", False)]
)
def test_every_algorithm_has_the_bits_of_host_arrays(tmp_path, monkeypatch, layout, p2p):
    by_threads(monkeypatch, tmp_path, layout, p2p, every_algorithm)


def test_one_rank_has_its_arrays_in_host_memory(tmp_path, monkeypatch):
    by_threads(monkeypatch, tmp_path, "2+1", False, partial(every_algorithm, on_host=1))


def in_stream(world: Any) -> None:
    gpu = gpu_of(world.rank)
    stream: Any = torch.cuda.Stream(gpu)
    with torch.cuda.stream(stream):
        array = torch.zeros(1 << 20, device=gpu)
        for number in range(1, 6):
            torch.cuda._sleep(5_000_000)
            array.fill_(number + world.rank)
            world.all_reduce(array, stream=stream)
            assert bool((array == 2 * number + 1).all())


def test_a_call_follows_a_stream_and_the_stream_follows_it(tmp_path, monkeypatch):
    by_threads(monkeypatch, tmp_path, "1+1", False, in_stream)


def until_lost(link: Link, directory: Path, noted: Path) -> None:
    """Rank 1 dies while rank 0 is in a call."""
    put_on_hosts(pytest.MonkeyPatch(), "1+1")
    with world_of(directory, link.rank, "1+1", False) as world:
        array = torch.ones(4 << 20, device="cuda")
        world.all_reduce(array)
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(zh.PeerLost, match="rank 1"):
            world.all_reduce(array)
        noted.write_text(str(time.monotonic() - begin))


def test_a_rank_that_dies_ends_the_call(tmp_path):
    noted = tmp_path / "seconds"
    with Ranks(until_lost, 2, tmp_path, noted) as ranks:
        with pytest.raises(RankFailed, match="rank 1"):
            ranks.results()
        until(noted.exists, "rank 0 has seen the loss", 60)
    assert float(noted.read_text()) < 6


def measured(link: Link, directory: Path, p2p: bool) -> dict[str, float]:
    """GB/s of an array, by the device of the array."""
    found = {}
    put_on_hosts(pytest.MonkeyPatch(), "1+1")
    with world_of(directory, link.rank, "1+1", p2p) as world:
        for device in ("cpu", gpu_of(world.rank)):
            array = torch.ones(MANY, device=device)
            for number in range(4):
                world.barrier()
                begin = time.perf_counter()
                world.all_reduce(array, "max")
                seconds = time.perf_counter() - begin
                if number > 0:
                    rate = array.nbytes / seconds / 1e9
                    found[device[:4]] = max(rate, found.get(device[:4], 0.0))
        world.barrier()
    return found


@pytest.mark.parametrize("p2p", [True, False])
def test_speed(tmp_path, rows, p2p):
    with Ranks(measured, 2, tmp_path, p2p) as ranks:
        found = ranks.results()[0]
    rows.add("all_reduce of 64 MiB, two hosts", p2p=p2p, **found)
    print(f"all_reduce of 64 MiB, two hosts, p2p={p2p}: {found}")


def test_a_gpu_reduces_as_the_host_does():
    """The kernel alone, many inputs too."""
    with zh.Endpoint(device="soft0") as endpoint:
        reducer = _core.GpuReducer(endpoint, endpoint.empty(1, device="cuda:0"))
        for dtype in (torch.uint8, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
            name = str(dtype).removeprefix("torch.")
            for inputs, count in ((1, 5), (2, 300_001), (_core.GpuReducer.INPUTS, 1000)):
                blocks = [given(dtype, count, seed) for seed in range(inputs)]
                expected = torch.empty_like(blocks[0])
                as_bytes = [each.view(torch.uint8).numpy() for each in blocks]
                _core.reduce(OPS["sum"], name, 1.0, expected.view(torch.uint8).numpy(), as_bytes)
                there = [each.cuda() for each in blocks]
                out = torch.zeros_like(there[0])
                torch.cuda.synchronize()
                places = [each.data_ptr() for each in there]
                reducer.reduce(OPS["sum"], name, 1.0, out.data_ptr(), out.nbytes, places, 10.0)
                same(out, expected, (dtype, inputs, count))

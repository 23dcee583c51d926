"""Collectives by kernels: ranks as threads of this process, and as processes, on all GPUs that are there."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zerohop as zh
from group_of_gpus import (
    bits,
    factor,
    gpu_of,
    most_bytes,
    on_gpus,
    ops_of,
    random,
    reduced,
    synchronize,
)
from zerohop.local import Link, RankFailed, Ranks

TYPES = (
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
COUNTS = (1, 7, 1000, 40_001, 300_003)  # elements: by packets, one or several, and by chunks
REPLAYS = 1000


def test_every_operation_of_every_type_is_the_hosts_bit_for_bit(group):
    generator = torch.Generator().manual_seed(group.size)
    for dtype in TYPES:
        for op in ops_of(dtype):
            for count in COUNTS if op in ("sum", "max") else (7, 40_001):
                inputs = [random(dtype, count, generator) for _ in range(group.size)]
                arrays = on_gpus(inputs)
                for call in group.call("all_reduce", [(each, op) for each in arrays], **factor(op)):
                    call.wait()
                expected = bits(reduced(op, inputs))
                for array in arrays:
                    assert np.array_equal(bits(array), expected), (dtype, op, count)


def test_every_reduction_goes_where_it_belongs(group):
    generator = torch.Generator().manual_seed(7)
    size = group.size
    for count in (*COUNTS, 2_000_000):
        if 4 * count > most_bytes(size):
            continue
        inputs = [random(torch.float32, count, generator) for _ in range(size)]
        arrays = on_gpus(inputs)
        outs = [torch.full_like(each, -1) for each in arrays]
        whole = bits(reduced("sum", inputs))
        group.call("all_reduce", [(each, "sum") for each in arrays], out=None)
        synchronize()
        assert all(np.array_equal(bits(each), whole) for each in arrays)
        arrays = on_gpus(inputs)
        root = count % size
        synchronize()
        for rank, world in enumerate(group.worlds):
            out = outs[rank] if rank == root else None
            world.reduce(arrays[rank], root, "sum", out=out, stream=group.streams[rank])
        synchronize()
        assert np.array_equal(bits(outs[root]), whole)
        assert all(np.array_equal(bits(a), bits(i)) for a, i in zip(arrays, inputs, strict=True))
        for rank, world in enumerate(group.worlds):
            world.scan(arrays[rank], "sum", out=outs[rank], stream=group.streams[rank])
        synchronize()
        for rank, out in enumerate(outs):
            assert np.array_equal(bits(out), bits(reduced("sum", inputs[: rank + 1]))), (
                count,
                rank,
            )
        parts = [random(torch.float32, count * size, generator) for _ in range(size)]
        group.call("reduce_scatter", list(zip(outs, on_gpus(parts), strict=True)))
        synchronize()
        for rank, out in enumerate(outs):
            mine = [part[rank * count : (rank + 1) * count].contiguous() for part in parts]
            assert np.array_equal(bits(out), bits(reduced("sum", mine))), (count, rank)


def test_exchanges_in_a_stream(group):
    size, worlds, streams = group.size, group.worlds, group.streams
    for dtype in (torch.uint8, torch.bfloat16, torch.float64):
        for count in (1, 1001, 70_000, 1_500_001):
            root = count % size
            if count * dtype.itemsize > most_bytes(size):
                continue

            def made(at: int, value: int, rows: int = 1, made_of: Any = (count, dtype)) -> Any:
                shape, kind = (rows, made_of[0]), made_of[1]
                return torch.full(shape, value, dtype=kind, device=gpu_of(at))

            arrays = [made(rank, 10 + rank) for rank in range(size)]
            group.call("broadcast", [(each, root) for each in arrays])
            synchronize()
            assert all(bool((each == 10 + root).all()) for each in arrays)
            arrays = [made(rank, 20 + rank) for rank in range(size)]
            outs = [made(rank, 0, size) for rank in range(size)]
            group.call("all_gather", list(zip(outs, arrays, strict=True)))
            synchronize()
            for out in outs:
                assert [int(row[0]) for row in out] == list(range(20, 20 + size))
                assert all(bool((row == row[0]).all()) for row in out)
            parts = [
                torch.cat([made(rank, 10 * rank + to) for to in range(size)])
                for rank in range(size)
            ]
            group.call("all_to_all", list(zip(outs, parts, strict=True)))
            synchronize()
            for rank, out in enumerate(outs):
                assert [int(row[-1]) for row in out] == [10 * it + rank for it in range(size)]
            synchronize()
            for rank, world in enumerate(worlds):
                given = parts[rank] if rank == root else None
                world.scatter(arrays[rank], given, root, stream=streams[rank])
            synchronize()
            assert [int(each[0, -1]) for each in arrays] == [10 * root + to for to in range(size)]
            for rank, world in enumerate(worlds):
                into = outs[rank] if rank == root else None
                world.gather(into, arrays[rank], root, stream=streams[rank])
            synchronize()
            assert [int(row[0]) for row in outs[root]] == [10 * root + to for to in range(size)]


def test_views_at_any_address(pair):
    """Slices that no vector access is aligned to."""
    generator = torch.Generator().manual_seed(3)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32):
        for begin, count in ((1, 9), (3, 30_000), (1, 400_001)):
            inputs = [random(dtype, begin + count, generator) for _ in range(2)]
            arrays = on_gpus(inputs)
            group_rows = [(each[begin:], "sum") for each in arrays]
            pair.call("all_reduce", group_rows)
            synchronize()
            expected = bits(reduced("sum", [each[begin:].contiguous() for each in inputs]))
            for array, given in zip(arrays, inputs, strict=True):
                assert np.array_equal(bits(array[begin:]), expected)
                assert np.array_equal(bits(array[:begin]), bits(given[:begin]))


def test_a_graph_is_replayed_a_thousand_times(pair):
    """Each replay takes what the one before has left; other calls come in between."""
    counts = (2, 1000, 9000, 200_000)
    arrays = [[torch.zeros(count, device=gpu_of(rank)) for count in counts] for rank in range(2)]
    graphs = []
    synchronize()
    for world, stream, mine in zip(pair.worlds, pair.streams, arrays, strict=True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for array in mine:
                array.add_(world.rank + 1)
                world.all_reduce(array, "avg", stream=torch.cuda.current_stream())
        graphs.append(graph)
    for number in range(REPLAYS):
        for graph, stream in zip(graphs, pair.streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        if number % 100 == 0:
            synchronize()
            ones = [torch.ones(5, device=gpu_of(rank)) for rank in range(2)]
            pair.call("all_reduce", [(each,) for each in ones])
            synchronize()
            assert all(bool((each == 2).all()) for each in ones)
    synchronize()
    for mine in arrays:
        for array in mine:
            assert bool((array == 1.5 * REPLAYS).all())


def test_a_stream_is_followed_and_goes_on(pair):
    """What was enqueued before is sent; what comes afterwards finds the result; the CPU does not wait."""
    arrays = [torch.zeros(100_000, device=gpu_of(rank)) for rank in range(2)]
    seen = [torch.zeros(100_000, device=gpu_of(rank)) for rank in range(2)]
    synchronize()
    begin = time.perf_counter()
    for world, stream, array, copy in zip(pair.worlds, pair.streams, arrays, seen, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(400_000_000)  # a fifth of a second
            array.fill_(world.rank + 1)
            call = world.all_reduce(array, stream=stream)
            copy.copy_(array)
            assert not call.done
    assert time.perf_counter() - begin < 0.1
    synchronize()
    assert all(bool((copy == 3).all()) for copy in seen)


def test_different_calls_are_an_error_that_names_them(pair, reported):
    arrays = [torch.ones(100, device=gpu_of(0)), torch.ones(200, device=gpu_of(1))]
    calls = pair.call("all_reduce", [(each,) for each in arrays])
    for rank, call in enumerate(calls):
        with pytest.raises(ValueError, match="same calls") as caught:
            call.wait()
        theirs = (800, 400)[rank]
        assert f"rank {1 - rank} has called all_reduce, sum, of {theirs} bytes" in str(caught.value)
    for world in pair.worlds:
        with pytest.raises(zh.Error):
            world.all_reduce(arrays[world.rank], stream=pair.streams[world.rank])
    assert "the stream continues without it" in reported[0]


def test_ways_that_differ_are_noticed(pair, reported):
    """One rank sends packets, the other chunks."""
    arrays = [torch.ones(100, device=gpu_of(0)), torch.ones(2_000_000, device=gpu_of(1))]
    for call in pair.call("all_reduce", [(each,) for each in arrays]):
        with pytest.raises(ValueError, match="same calls"):
            call.wait()
    assert "same calls" in reported[0]


def test_a_rank_that_does_not_come(pair, reported):
    array = torch.ones(100, device=gpu_of(0))
    synchronize()
    begin = time.perf_counter()
    call = pair.worlds[0].all_reduce(array, stream=pair.streams[0], timeout=0.5)
    with pytest.raises(zh.TransferTimeout, match=r"rank 1 did not come in 0\.5 s"):
        call.wait()
    assert time.perf_counter() - begin < 3
    assert "rank 1 did not come" in reported[0]


def test_mistakes(pair):
    world, stream = pair.worlds[0], pair.streams[0]
    array = torch.ones(8, device=gpu_of(0))
    with pytest.raises(TypeError, match="there is no band of float32"):
        world.all_reduce(array, "band", stream=stream)
    with pytest.raises(ValueError, match="contiguous"):
        world.all_reduce(array[::2], stream=stream)
    with pytest.raises(ValueError, match="overlaps"):
        world.all_reduce(array[:6], out=array[2:], stream=stream)
    with pytest.raises(ValueError, match="equal blocks"):
        world.all_reduce(array, out=torch.ones(4, device=gpu_of(0)), stream=stream)
    assert world.gpu_collectives == "kernels of cuda:0"
    ones = [torch.ones(8, device=gpu_of(rank)) for rank in range(2)]
    for call in pair.call("all_reduce", [(each,) for each in ones]):
        call.wait()
    assert bool((ones[0] == 2).all())


def in_process(link: Link, directory: Path) -> None:
    torch.cuda.set_device(gpu_of(link.rank))
    options: dict[str, Any] = {"device": "soft0", "timeout": 60.0, "gpu_collectives": "kernels"}
    with zh.World(directory, link.rank, 2, **options) as world:
        for count in (3, 3, 1000, 50_000, 3_000_000):
            array = torch.full((count,), float(world.rank + 1), device=gpu_of(world.rank))
            world.all_reduce(array)
            assert bool((array == 3).all()), count
            link.report(f"{count} by {world.gpu_collectives}")
        assert world.gpu_collectives == f"kernels of {gpu_of(world.rank)}"
        world.barrier()


def test_between_processes(tmp_path):
    with Ranks(in_process, 2, tmp_path) as ranks:
        ranks.results()


def until_the_end(link: Link, directory: Path) -> None:
    """Rank 0 kills rank 1 while its kernel waits for it, and notes how long it waited then."""
    torch.cuda.set_device(gpu_of(link.rank))
    options: dict[str, Any] = {"device": "soft0", "timeout": 60.0, "gpu_collectives": "kernels"}
    world = zh.World(directory / "job", link.rank, 2, **options)
    array = torch.ones(1000, device=gpu_of(link.rank))
    world.all_reduce(array)
    world.all_reduce(array)
    _, other = link.exchange(os.getpid())
    if link.rank == 1:
        threading.Event().wait()
    call = world.all_reduce(array, stream=torch.cuda.current_stream())
    os.kill(other, signal.SIGKILL)
    begin = time.perf_counter()
    with pytest.raises(zh.PeerLost, match="rank 1"):
        call.wait()
    synchronize()
    (directory / "seconds").write_text(str(time.perf_counter() - begin))
    world.close()


def test_a_rank_is_killed(tmp_path):
    noted, deadline = tmp_path / "seconds", time.monotonic() + 60
    with Ranks(until_the_end, 2, tmp_path) as ranks:
        with pytest.raises(RankFailed, match="rank 1"):
            ranks.results()
        while not noted.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert float(noted.read_text()) < 5

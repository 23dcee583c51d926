"""Collectives by kernels whose arrays lie in a segment of all ranks: in place, and the results are the same."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zerohop as zh
from group_of_gpus import Group, bits, gpu_of, most_bytes, random, reduced, synchronize
from zerohop import _core
from zerohop.local import Link, Ranks

NBYTES = 128 << 20
COUNTS = (700_001, 4_000_000)  # elements; more than packets carry
REPLAYS = 300
BLOCKS, TURNS = 256, 2  # of group_call.hpp


class Segments:
    """One of each rank. Tensors are taken from it, at offsets that differ from rank to rank."""

    def __init__(self, group: Group) -> None:
        self.all = [
            world.segment(NBYTES, device=gpu_of(rank)) for rank, world in enumerate(group.worlds)
        ]
        self._free = [
            torch.from_dlpack(each.local)[4096 * rank :] for rank, each in enumerate(self.all)
        ]

    def take(self, tensors: list[torch.Tensor], ahead: int = 0) -> list[torch.Tensor]:
        """Copies of host tensors, by rank, `ahead` elements after an aligned address."""
        taken = []
        for rank, tensor in enumerate(tensors):
            begin, nbytes = ahead * tensor.element_size(), tensor.numel() * tensor.element_size()
            place = self._free[rank][begin : begin + nbytes]
            self._free[rank] = self._free[rank][(begin + nbytes + 255) // 256 * 256 :]
            taken.append(place.view(tensor.dtype).view(tensor.shape))
            taken[-1].copy_(tensor)
        return taken

    def close(self) -> None:
        synchronize()
        self._free.clear()
        for each in self.all:
            each.close()


def used_arenas(group: Group) -> bool:
    """Whether a chunk has passed them."""
    synchronize()
    chunk = (1 << 16) // group.size // 16 * 16
    nbytes = 2 * BLOCKS * TURNS * (group.size - 1) * chunk  # at the end
    arenas = [torch.from_dlpack(world._desk.gpus._arena) for world in group.worlds]
    assert [each.numel() for each in arenas] == [_core.GpuGroup.NBYTES[group.size]] * group.size
    return any(bool(each[-nbytes:].any()) for each in arenas)


def counts(group: Group, itemsize: int) -> list[int]:
    """Those that fit: see most_bytes()."""
    most = most_bytes(group.size) // itemsize
    return [count for count in COUNTS if count <= most] or [most - 1]


def test_reductions_in_place_are_the_hosts_bit_for_bit(group):
    generator, size = torch.Generator().manual_seed(group.size), group.size
    for dtype in (torch.float32, torch.bfloat16):
        for ahead in (0, 1):
            for count in counts(group, dtype.itemsize):
                segments = Segments(group)
                inputs = [random(dtype, count, generator) for _ in range(size)]
                arrays, others = segments.take(inputs, ahead), segments.take(inputs, ahead)
                expected = bits(reduced("sum", inputs))
                group.call("all_reduce", [(each, "sum") for each in arrays])
                for rank, world in enumerate(group.worlds):
                    world.reduce(others[rank], 1, "sum", stream=group.streams[rank])
                synchronize()
                for array in (*arrays, others[1]):
                    assert np.array_equal(bits(array), expected), (dtype, ahead, count)
                parts = segments.take(
                    [random(dtype, count * size, generator) for _ in range(size)], ahead
                )
                mine = [
                    [part[to * count : (to + 1) * count].cpu() for part in parts]
                    for to in range(size)
                ]
                outs = [torch.empty_like(each) for each in arrays]  # elsewhere
                group.call("reduce_scatter", list(zip(outs, parts, strict=True)))
                synchronize()
                for rank, out in enumerate(outs):
                    assert np.array_equal(bits(out), bits(reduced("sum", mine[rank])))
                segments.close()
    assert not used_arenas(group)


def test_exchanges_in_place(group):
    size, worlds, streams = group.size, group.worlds, group.streams
    for count in counts(group, 2):
        segments = Segments(group)

        def made(value: int, rows: int = 1, of: Any = (count, segments)) -> list[torch.Tensor]:
            shape = (rows, of[0])
            each = [torch.full(shape, value + rank, dtype=torch.int16) for rank in range(size)]
            return of[1].take(each)

        root = size - 1
        arrays, outs, parts = made(10), made(0, size), made(0, size)
        group.call("broadcast", [(each, root) for each in arrays])
        synchronize()
        assert all(bool((each == 10 + root).all()) for each in arrays)
        arrays = made(20)
        group.call("all_gather", list(zip(outs, arrays, strict=True)))
        synchronize()
        for out in outs:
            assert [int(row[-1]) for row in out] == list(range(20, 20 + size))
            assert all(bool((row == row[0]).all()) for row in out)
        for rank, part in enumerate(parts):
            for to in range(size):
                part[to] = 10 * rank + to
        group.call("all_to_all", list(zip(outs, parts, strict=True)))
        synchronize()
        for rank, out in enumerate(outs):
            assert [int(row[-1]) for row in out] == [10 * it + rank for it in range(size)]
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
        segments.close()
    assert not used_arenas(group)


def test_a_rank_whose_array_lies_elsewhere(pair):
    segments, count = Segments(pair), 1_000_000
    arrays = segments.take([torch.full((count,), float(rank + 1)) for rank in range(2)])
    pair.call("all_reduce", [(each,) for each in arrays])
    assert not used_arenas(pair)
    elsewhere = arrays[1].clone()
    pair.call("all_reduce", [(arrays[0],), (elsewhere,)])
    assert used_arenas(pair)
    assert bool((arrays[0] == 6).all())
    assert bool((elsewhere == 6).all())
    pair.call("all_reduce", [(each,) for each in arrays])
    synchronize()
    assert bool((arrays[0] == 9).all())
    segments.close()


def test_a_graph_in_place_is_replayed(pair):
    segments, count = Segments(pair), 600_000
    arrays = segments.take([torch.zeros(count) for _ in range(2)])
    pair.call("all_reduce", [(each,) for each in arrays])  # maps the parts
    graphs = []
    synchronize()
    for world, stream, array in zip(pair.worlds, pair.streams, arrays, strict=True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            array.add_(world.rank + 1)
            world.all_reduce(array, "avg", stream=torch.cuda.current_stream())
        graphs.append(graph)
    for _ in range(REPLAYS):
        for graph, stream in zip(graphs, pair.streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    synchronize()
    assert all(bool((array == 1.5 * REPLAYS).all()) for array in arrays)
    assert not used_arenas(pair)
    graphs.clear()
    del graph
    segments.close()


def test_no_stream_goes_on_before_the_others_have_read(pair):
    """Each rank overwrites its array behind the call, one of them late."""
    segments, count = Segments(pair), 3_000_000
    arrays = segments.take([torch.zeros(count) for _ in range(2)])
    outs = [torch.zeros(2, count, device=gpu_of(rank)) for rank in range(2)]
    synchronize()
    for number in range(50):
        for world, stream, array, out in zip(pair.worlds, pair.streams, arrays, outs, strict=True):
            with torch.cuda.stream(stream):
                # Not by torch.cuda._sleep(), whose kernel does not start beside one that waits.
                for _ in range(20 if world.rank == number % 2 else 1):
                    array.fill_(number + world.rank)
                world.all_gather(out, array, stream=stream)
                array.fill_(-1)
        synchronize()
        for out in outs:
            assert bool((out[0] == number).all())
            assert bool((out[1] == number + 1).all())
    segments.close()


def test_a_rank_that_does_not_come(pair, reported):
    segments = Segments(pair)
    arrays = segments.take([torch.ones(1_000_000) for _ in range(2)])
    synchronize()
    begin = time.perf_counter()
    call = pair.worlds[0].all_reduce(arrays[0], stream=pair.streams[0], timeout=0.5)
    with pytest.raises(zh.TransferTimeout, match=r"rank 1 did not come in 0\.5 s"):
        call.wait()
    assert time.perf_counter() - begin < 3
    assert "rank 1 did not come" in reported[0]
    late = pair.worlds[1].all_reduce(arrays[1], stream=pair.streams[1], timeout=0.5)
    with pytest.raises(zh.Error):
        late.wait()
    assert bool((arrays[0] == 1).all())
    segments.close()


def in_process(link: Link, directory: Path) -> None:
    torch.cuda.set_device(gpu_of(link.rank))
    options: dict[str, Any] = {"device": "soft0", "timeout": 60.0, "gpu_collectives": "kernels"}
    with zh.World(directory, link.rank, 2, **options) as world:
        world.all_reduce(torch.ones(1, device=gpu_of(link.rank)))
        for count in (600_000, 3_000_000):
            segment = world.segment(4 * count + 4096, device=gpu_of(link.rank))
            here = torch.from_dlpack(segment.local)[4096 * link.rank :][: 4 * count]
            array = here.view(torch.float32)
            for _ in range(5):
                array.fill_(link.rank + 1)
                world.all_reduce(array)
                assert bool((array == 3).all()), count
            world.barrier()  # all have made theirs, so the next is in place
            array.fill_(link.rank + 1)
            torch.cuda.synchronize()
            world.all_reduce(array, stream=torch.cuda.current_stream()).wait()
            assert bool((array == 3).all()), count
            link.report(f"{count} elements")
            world.barrier()
            segment.close()


def test_between_processes(tmp_path):
    with Ranks(in_process, 2, tmp_path) as ranks:
        ranks.results()

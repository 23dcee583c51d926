"""How the ranks of a World agree on collectives by kernels: with a stand-in for the kernels, and host arrays for a GPU's."""

import threading

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt
from support.hosts import put_on_hosts
from support.ranks import close, results, worlds
from zerohop import _core
from zerohop._world.history import KINDS
from zerohop._world.parts import OwnPart
from zerohop.collectives import gpu_group


class Standin:
    """Of one rank. Its calls are done at once, as those that become part of a graph."""

    NBYTES = _core.GpuGroup.NBYTES
    RANKS, LEFT = _core.GpuGroup.RANKS, _core.GpuGroup.LEFT
    PACKET_BYTES = (64,) * (RANKS + 1)
    refuses = ""  # why it meets nobody

    def __init__(self, endpoint, rank, size, arena, name, timeout):
        assert arena.nbytes == self.NBYTES[size]
        self.rank, self.met, self.ended, self.calls, self.part = rank, [], "", [], None

    def meet(self, rank, peer, arena, timeout):
        if self.refuses:
            raise zh.RouteUnavailable(self.refuses)
        assert arena.nbytes > 0
        self.met.append(rank)

    def call(self, kind, root, op, factor, dtype, nbytes, sources, targets, stream, timeout, part):
        self.part = part
        self.calls.append((KINDS[kind], root, op, dtype, nbytes, len(sources), len(targets)))

    def end(self, reason):
        self.ended = reason


class StandinPart:
    """Of one rank: memory of all ranks that its kernels reach."""

    refuses = ""
    asked = 0  # how often

    def __init__(self, rank, size, memory):
        StandinPart.asked += 1
        self.met = {rank: memory.remote.to_bytes()}

    def meet(self, rank, peer, memory, timeout):
        if self.refuses:
            raise zh.RouteUnavailable(self.refuses)
        self.met[rank] = memory.to_bytes()


@pytest.fixture
def stand_in(monkeypatch):
    """Arrays in host memory count as a GPU's, except those of a rank that is named."""
    host = threading.local()
    monkeypatch.setattr(gpu_group._core, "GpuGroup", Standin)
    monkeypatch.setattr(gpu_group._core, "GroupPart", StandinPart)
    monkeypatch.setattr(OwnPart, "on_gpu", True)
    monkeypatch.setattr(StandinPart, "asked", 0)
    monkeypatch.setattr(gpu_group._core, "has_kernels", lambda: True)
    monkeypatch.setattr(
        gpu_group, "_gpu_of", lambda flats: "" if getattr(host, "arrays", False) else "cpu"
    )
    monkeypatch.setattr(gpu_group, "_pci_of", lambda device: f"GPU of {threading.get_ident()}")
    monkeypatch.setattr(
        gpu_group, "_on_gpu", lambda array: array is not None and not getattr(host, "arrays", False)
    )
    return host


@pytest.fixture
def ranks(rank_threads, stand_in, monkeypatch):
    """Worlds whose calls take the general way."""
    from zerohop.collectives.desk import Desk

    monkeypatch.setattr(Desk, "at_once", lambda *_: None)
    put_on_hosts(monkeypatch)
    made = []

    def make(size, **options):
        made.extend(worlds(rank_threads, range(size), size, **options))
        return made

    yield make
    close(made)


def first(world, **how):
    array = np.full(3, world.rank + 1.0)
    world.all_reduce(array, **how).wait()
    assert (array == sum(range(1, world.size + 1))).all()  # by messages


def calls_of(world):
    return world._desk.gpus._group.calls


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_first_reduction_sets_a_group_up_on_all_ranks(ranks, size):
    made = ranks(size)
    assert all(
        world.gpu_collectives
        == "messages: no all_reduce or reduce_scatter of GPU arrays by all ranks yet"
        for world in made
    )
    results([Attempt(first, world) for world in made])
    for world in made:
        group = world._desk.gpus._group
        assert group.met == [rank for rank in range(size) if rank != world.rank]
        assert world.gpu_collectives == "kernels of cpu"
        assert world.has_gpu_kernels
        array, many = np.zeros(8, "f4"), np.zeros(8 * size, "f4")
        world.all_reduce(array, "max")
        world.reduce_scatter(array, many)
        world.broadcast(array, 1, stream=7)
        world.all_gather(many, array, stream=7)
        assert group.calls == [
            ("all_reduce", -1, 4, "float32", 32, 1, 1),
            ("reduce_scatter", -1, 1, "float32", 32, size, 1),
            ("broadcast", 1, 0, "float32", 32, int(world.rank == 1), int(world.rank != 1)),
            ("all_gather", -1, 0, "float32", 32, 1, size),
        ]
        with pytest.raises(TypeError, match="there is no band of float32"):
            world.all_reduce(array, "band")
        with pytest.raises(ValueError, match="overlaps"):
            world.all_reduce(many[:8], out=many[4:12])
        with pytest.raises(ValueError, match="equal blocks"):
            world.all_reduce(array, out=many)
    world.close()
    assert group.ended == "the World 'world' is closed"


def test_who_closes_a_split_ends_the_kernels_that_wait_for_it(ranks):
    """Kernels look for that word; see test_group_kernels.cpp."""
    made = ranks(3)
    splits = [world.split([2, 0, 1]) for world in made]
    results([Attempt(first, split) for split in splits])
    splits[2].close()  # its rank there is 0
    word = slice(_core.GpuGroup.LEFT[0], _core.GpuGroup.LEFT[1])
    for split in splits[:2]:
        arena = np.asarray(split._desk.gpus._arena)
        assert arena[word].view(np.uint32).tolist() == [1]
        assert arena[word.stop : _core.GpuGroup.LEFT[2] + 4].any() == 0
    splits[1].close()  # what rank 0 has freed is not written


def test_a_call_after_one_in_the_background_waits_for_its_decision(ranks):
    made = ranks(2)
    arrays = [[np.ones(1 << 18), np.ones(4)] for _ in made]

    def two(world, mine):
        calls = [world.all_reduce(array, wait=False) for array in mine]
        for call in calls:
            call.wait()

    results([Attempt(two, world, mine) for world, mine in zip(made, arrays, strict=True)])
    for world, (large, small) in zip(made, arrays, strict=True):
        assert (large == 2).all()
        assert (small == 1).all()  # the stand-in's
        assert [call[4] for call in calls_of(world)] == [32]


def test_a_rank_with_an_array_of_the_host_puts_the_decision_off(ranks, stand_in):
    made = ranks(3)

    def mixed(world):
        stand_in.arrays = world.rank == 1
        first(world)
        stand_in.arrays = False

    results([Attempt(mixed, world) for world in made])
    assert not any(world.has_gpu_kernels for world in made)
    results([Attempt(first, world) for world in made])
    assert all(world.has_gpu_kernels for world in made)


def test_ranks_of_several_hosts_have_no_group(ranks, monkeypatch):
    why = "the ranks do not all copy from and to each other on one host"
    put_on_hosts(monkeypatch, "2x2")
    made = ranks(4)
    results([Attempt(first, world) for world in made])
    assert {world.gpu_collectives for world in made} == {f"messages: {why}"}


def test_a_rank_that_cannot_be_reached_decides_for_all(ranks, monkeypatch):
    made = ranks(3)
    monkeypatch.setattr(Standin, "refuses", "there is no link")
    results([Attempt(first, world) for world in made])
    for world in made:
        assert world.gpu_collectives == "messages: rank 0: there is no link"
    results([Attempt(first, world) for world in made])  # still works


def test_ranks_that_share_a_gpu_use_messages(ranks, monkeypatch):
    monkeypatch.setattr(gpu_group, "_pci_of", lambda device: "0000:01:00.0")
    made = ranks(2)
    results([Attempt(first, world) for world in made])
    for world in made:
        assert world.gpu_collectives.startswith(
            "messages: rank 0: ranks 0 and 1 share the GPU 0000:01:00.0"
        )


def test_kernels_that_are_demanded_and_cannot_be_are_an_error(ranks, monkeypatch):
    made = ranks(2, gpu_collectives="kernels")
    monkeypatch.setattr(Standin, "refuses", "there is no link")
    for attempt in [Attempt(first, world) for world in made]:
        error = attempt.failure(zh.RouteUnavailable)
        assert "cannot be: rank 0: there is no link" in str(error)


def test_messages_can_be_demanded(ranks):
    made = ranks(2, gpu_collectives="messages")
    results([Attempt(first, world) for world in made])
    assert made[0].gpu_collectives == 'messages: gpu_collectives="messages"'


def test_an_unknown_way_is_refused(tmp_path):
    with pytest.raises(ValueError, match="gpu_collectives must be one of auto, kernels, messages"):
        zh.World(tmp_path / "job", 0, 1, device="soft0", gpu_collectives="always")


NBYTES = 4096  # of segments


def part_of(world, array):
    """What the kernels are told about where the array may lie."""
    world.broadcast(array, 0, stream=7)
    return world._desk.gpus._group.part


def test_kernels_reach_large_arrays_in_a_segment(ranks):
    made = ranks(3)
    segments = [world.segment(NBYTES) for world in made]
    results([Attempt(first, world) for world in made])
    for world, segment in zip(made, segments, strict=True):
        part = part_of(world, segment.local[100:1100])
        assert part.met == {
            rank: each._part.bytes.remote.to_bytes() for rank, each in enumerate(segments)
        }
        assert part_of(world, segment.local[2000:3000]) is part
        assert part_of(world, np.zeros(1000, np.uint8)) is None
        assert part_of(world, segment.local[:32]) is None  # packets carry it
        later = world.segment(NBYTES)
        kept = np.asarray(later.local)
        later.close()
        assert part_of(world, kept) is None
    assert StandinPart.asked == len(made)


def test_a_segment_that_other_ranks_have_yet_to_make(ranks):
    """The call waits for none of them."""
    made = ranks(2)
    results([Attempt(first, world) for world in made])
    here = made[0].segment(NBYTES)
    assert part_of(made[0], here.local) is None
    made[1].segment(NBYTES)
    assert sorted(part_of(made[0], here.local).met) == [0, 1]


def test_a_segment_that_kernels_cannot_reach_is_asked_for_once(ranks, monkeypatch):
    made = ranks(2)
    segments = [world.segment(NBYTES) for world in made]
    results([Attempt(first, world) for world in made])
    monkeypatch.setattr(StandinPart, "refuses", "it lies in several chunks")
    assert [part_of(made[0], segments[0].local) for _ in range(2)] == [None, None]
    assert StandinPart.asked == 1


def test_a_world_of_some_ranks_reaches_the_segments_of_the_whole_one(ranks):
    made = ranks(3)
    segments = [world.segment(NBYTES) for world in made]
    splits = [made[rank].split([2, 0]) for rank in (2, 0)]
    results([Attempt(first, split) for split in splits])
    for split, whole in zip(splits, (2, 0), strict=True):
        part = part_of(split, segments[whole].local)
        assert part.met == {
            rank: segments[of]._part.bytes.remote.to_bytes() for rank, of in enumerate((2, 0))
        }
    assert part_of(splits[0], segments[2].local) is part_of(splits[0], segments[2].local)

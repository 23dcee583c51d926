"""Kernels of Numba that put, get, notify and wait by themselves, between two processes' GPUs, by each way."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np
import pytest
import torch
import zerohop as zh
from device_kernels import fetch
from far_side import POISON, THEIRS
from frameworks import COMPILER, usable
from test_device_queue import NBYTES, PATIENCE, TEAMS, Ends, both_ends, poison

usable(COMPILER, "numba-cuda")
zn = usable("zerohop.numba", "numba-cuda")
numba_kernels = usable("numba_kernels", "numba-cuda")

Status = zn.Status
OK = Status.OK
FAR_KERNELS = """
import numba_kernels as theirs
wait_any, look, check_rounds, wait_checked = theirs.load(
    theirs.wait_any, theirs.look, theirs.check_rounds, theirs.wait_checked
)
"""


@cache
def kernels() -> Any:
    functions = [*numba_kernels.SIGNATURES]
    names = (function.__name__ for function in functions)
    return SimpleNamespace(**dict(zip(names, numba_kernels.load(*functions), strict=True)))


@pytest.fixture(params=["mapped", "proxy", "direct"], scope="module")
def lasting(request):
    with both_ends(THEIRS[-1], way=request.param) as ends:
        ends.far.run(FAR_KERNELS)
        kernels()
        yield ends


@pytest.fixture
def ends(lasting):
    return poison(lasting)


def call(kernel: Any, threads: int, *arguments: Any) -> list[int]:
    """What one block of it says."""
    said = cupy.full(12, -1, "int32")
    kernel[1, threads](*arguments, said)
    found: list[int] = fetch(said).tolist()
    return found


@pytest.mark.parametrize("team", TEAMS)
def test_what_is_put_is_there_and_comes_back(ends, team):
    nbytes, to, start = 1003, 5000, 77
    ours = np.random.default_rng(team).integers(0, 256, nbytes, np.uint8)
    ends.array[start : start + nbytes] = torch.from_numpy(ours)
    torch.cuda.synchronize()
    said = call(kernels().moves, TEAMS[team], ends.queue.address, team, to, start, nbytes)
    assert said[:8] == [OK] * 8
    there = np.full(NBYTES, POISON, np.uint8)
    there[to : to + 2 * nbytes] = np.tile(ours, 2)
    assert (ends.far.run("answer = array.cpu().numpy()") == there).all()
    here = np.full(NBYTES, POISON, np.uint8)
    here[start : start + 3 * nbytes] = np.tile(ours, 3)
    assert (ends.array.cpu().numpy() == here).all()


def test_values_of_every_type(ends):
    assert call(kernels().values, 1, ends.queue.address)[:11] == [OK] * 11
    there = ends.far.run("answer = array[:80].cpu().numpy()").reshape(10, 8)
    expected = [
        *(np.int8(-1), np.uint8(200), np.int16(-300), np.uint16(60000), np.int32(-70000)),
        *(np.uint32(4000000000), np.int64(-5000000000), np.uint64(1 << 63)),
        *(np.float32(1.5), np.float64(2.5)),
    ]
    for value, found in zip(expected, there, strict=True):
        assert found.tobytes() == value.tobytes().ljust(8, bytes([POISON]))


@contextmanager
def words(ends: Ends) -> Iterator[tuple[zh.DeviceQueue, str]]:
    """A queue to int64 words that may be added to, all 0, and what the other side calls them."""
    if ends.queue.way == "mapped":
        ends.far.run("array.zero_()")
        yield ends.queue, "array[:1024].view(torch.int64)"
    else:
        ends.far.run('words = ep.empty(128, "int64"); ep.share("words", words)')
        there, way = ends.peer["words"], ends.queue.way
        with ends.peer.device_queue(ends.memory, there, way=way) as queue:
            yield queue, "np.asarray(words)"


def test_many_threads_count(ends):
    blocks, threads, times = 2, 64, 5
    with words(ends) as (queue, theirs):
        olds = cupy.zeros(blocks * threads * times, "uint64")
        said = cupy.full(1, -1, "int32")
        kernels().count_up[blocks, threads](queue.address, 64, times, olds, said)
        assert int(fetch(said)[0]) == -1
        assert sorted(fetch(olds).tolist()) == list(range(olds.size))
        assert ends.far.run(f"answer = int({theirs}[8])") == olds.size


def test_words_are_swapped(ends):
    with words(ends) as (queue, theirs):
        said = call(kernels().swap, 1, queue.address, 128, 0, 5)[:6]
        if queue.way == "mapped":
            assert said == [OK, 0, OK, 5, OK, 0]
        else:  # adapters have atomics of 64 bits alone
            assert said == [Status.NOT_ALLOWED, 0, OK, 0, Status.NOT_ALLOWED, 0]
        assert ends.far.run(f"answer = int({theirs}[16])") == 0
        assert call(kernels().swap, 1, queue.address, NBYTES, 0, 5)[2] == Status.OUT_OF_BOUNDS


@pytest.mark.parametrize("team", TEAMS)
def test_notifications(ends, team):
    slot = 10 + 4 * team
    said = call(kernels().notes, TEAMS[team], ends.queue.address, team, slot)
    assert said[:5] == [OK] * 5
    seen = ends.far.run(f"""
answer = []
for slot in range({slot}, {slot + 4}):
    said = cupy.full(7, -1, "int32")
    look[1, 1](board.address, slot, {PATIENCE}, said)
    answer.append(fetch(said).tolist())
""")
    assert seen == [[OK, v, v, v, 0, Status.TIMED_OUT, 0] for v in (10, 11, 12, 13)]


@pytest.mark.parametrize("team", TEAMS)
def test_a_kernel_waits_for_one_of_several(ends, team):
    first = 40 + 10 * team
    ends.far.begin(
        'said = cupy.full(3, -1, "int32");'
        f"wait_any[1, {TEAMS[team]}](board.address, {team}, {first}, 3, {PATIENCE}, said);"
        "answer = fetch(said).tolist()"
    )
    said = call(kernels().notes, 1, ends.queue.address, zn.THREAD, first + 2)
    assert said[:4] == [OK] * 4
    assert ends.far.finish() == [OK, first + 2, 10]


@pytest.mark.parametrize("team", TEAMS)
def test_what_came_is_compared_with_what_was_sent(ends, team):
    nbytes, slot = 5001, 80 + team
    for looked_at, expected in ((nbytes, OK), (nbytes + 1, Status.CORRUPT)):
        said = call(kernels().put_checked, TEAMS[team], ends.queue.address, team, nbytes, slot)
        assert said[0] == OK
        found = ends.far.run(f"""
said = cupy.full(1, -1, "int32")
where = (array.data_ptr(), {looked_at}, {slot}, {PATIENCE})
wait_checked[1, {TEAMS[team]}](board.address, {team}, *where, said)
answer = int(fetch(said)[0])
""")
        assert found == expected


def test_what_does_not_fit_is_refused(ends):
    said = call(kernels().moves, 1, ends.queue.address, zn.THREAD, NBYTES - 8, 0, 9)
    assert said[0:8:2] == [Status.OUT_OF_BOUNDS] * 4
    assert call(kernels().notes, 1, ends.queue.address, zn.THREAD, 70000)[:4] == (
        [Status.BAD_SLOT] * 4
    )
    outside = (ends.board.address, zn.THREAD, 600, 1, 0)
    assert call(kernels().wait_any, 1, *outside)[0] == Status.BAD_SLOT
    assert ends.far.run("answer = int((array != 0xA5).sum())") == 0


@pytest.mark.parametrize("team", TEAMS)
def test_a_wait_ends_by_its_bound(ends, team):
    began = time.monotonic()
    in_vain = (ends.board.address, team, 200, 4, 50_000_000)
    assert call(kernels().wait_any, TEAMS[team], *in_vain)[0] == Status.TIMED_OUT
    assert 0.05 <= time.monotonic() - began < 5.0


def test_data_is_there_before_its_notification(ends):
    """Persistent kernels in the default streams of both, which nothing may wait for."""
    rounds, nbytes, slot = 300, 4000, 300
    same = f"{rounds}, {slot}, {PATIENCE}, said"
    ends.far.begin(
        'said = cupy.zeros(2, "int32"); said[0] = -1;'
        f"check_rounds[1, 64](queue.address, board.address, array[:{nbytes}], {same});"
        "answer = fetch(said).tolist()"
    )
    said = cupy.full(1, -1, "int32")
    write = kernels().write_rounds[1, 64]
    write(ends.queue.address, ends.board.address, ends.array[:nbytes], rounds, slot, PATIENCE, said)
    assert int(fetch(said)[0]) == OK
    assert ends.far.finish() == [OK, 0]

"""Kernels whose entries a thread of the host or a device carries out, between two processes."""

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import pytest
import torch
import zerohop as zh
from device_kernels import BLOCK, FAILED, MISALIGNED, NOT_ALLOWED, OK, OUT_OF_BOUNDS, fetch
from far_side import POISON
from test_device_queue import NBYTES, PATIENCE, TEAMS, THEIRS, Ends, both_ends, i32, u32, u64

WAYS = {
    "proxy": "a thread of this process carries out",
    "direct": "ring its doorbell by themselves",
}


@pytest.fixture(
    params=[(device, way) for device in THEIRS for way in WAYS], ids="-".join, scope="module"
)
def lasting(request: pytest.FixtureRequest) -> Iterator[Ends]:
    device, way = request.param
    with both_ends(device, way=way) as ends:
        yield ends


@pytest.fixture
def ends(lasting: Ends) -> Ends:
    """The same for all tests, with fresh content."""
    lasting.array.fill_(POISON)
    torch.cuda.synchronize()
    lasting.far.run("array.fill_(0xA5)")
    return lasting


def test_it_says_so(ends: Ends) -> None:
    assert WAYS[ends.queue.way] in ends.queue.route.reason
    assert ends.queue.error is None


def test_put_at_random_places(ends: Ends) -> None:
    rng = random.Random(5)
    expected = np.full(NBYTES, POISON, np.uint8)
    ours = np.random.default_rng(5).integers(0, 256, NBYTES, np.uint8)
    ends.array.copy_(torch.from_numpy(ours))
    torch.cuda.synchronize()
    for _ in range(100):
        team, threads = rng.choice(list(TEAMS.items()))
        nbytes = rng.choice([0, 1, 3, 8, 100, rng.randrange(70_000)])
        to, start = (rng.randrange(NBYTES - nbytes + 1) for _ in range(2))
        arguments = (ends.queue.value, i32(team), u64(to), u64(start), u64(nbytes))
        assert ends.call("put_done", 1, threads, *arguments)[0] == OK
        expected[to : to + nbytes] = ours[start : start + nbytes]
    there = ends.far.run("answer = array.cpu().numpy()")
    assert (there == expected).all()


def test_get_at_random_places(ends: Ends) -> None:
    rng = random.Random(6)
    theirs = np.random.default_rng(6).integers(0, 256, NBYTES, np.uint8)
    ends.far.run(
        f"array.copy_(torch.from_numpy(np.random.default_rng(6).integers(0, 256, {NBYTES}, np.uint8)));"
        "torch.cuda.synchronize()"
    )
    expected = np.full(NBYTES, POISON, np.uint8)
    for _ in range(100):
        team, threads = rng.choice(list(TEAMS.items()))
        nbytes = rng.choice([0, 1, 5, 16, 333, rng.randrange(70_000)])
        start, to = (rng.randrange(NBYTES - nbytes + 1) for _ in range(2))
        arguments = (ends.queue.value, i32(team), u64(start), u64(to), u64(nbytes))
        assert ends.call("get_done", 1, threads, *arguments)[0] == OK
        expected[to : to + nbytes] = theirs[start : start + nbytes]
    assert (ends.array.cpu().numpy() == expected).all()


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (1, 32), (1, 50), (4, 128)])
def test_threads_put_at_once(ends: Ends, blocks: int, threads: int) -> None:
    """More than the ring holds, some of them with lanes of a warp that is not full."""
    times = 4096 // (blocks * threads)
    took = cupy.zeros(2, "uint64")
    ends.status.fill(0)
    ends.kernels.put_values(blocks, threads, ends.queue.value, u32(times), ends.status, took)
    assert int(fetch(ends.status)[0]) == OK
    count = blocks * threads * times
    there = ends.far.run(f"answer = array[: 8 * {count}].cpu().numpy().view(np.uint64)")
    assert (there == np.arange(count, dtype=np.uint64) * 3 + 1).all()


@pytest.mark.parametrize("team", TEAMS)
def test_notifications_between_kernels(ends: Ends, team: int) -> None:
    threads = TEAMS[team]
    ends.far.begin(
        f"kernels.wait_any(1, {threads}, board.value, i32({team}), u32(3), u32(5), u64({PATIENCE}), i32(1), status);"
        "answer = fetch(status).tolist()"
    )
    ends.array.fill_(9)
    torch.cuda.synchronize()
    whole = (ends.queue.value, i32(team), u64(64), u64(0), u64(100), u32(6), u32(77))
    assert ends.call("put_notify_one", 1, threads, *whole)[0] == OK
    assert ends.far.finish()[:3] == [OK, 6, 77]
    assert ends.far.run("answer = int((array[64:164] == 9).sum())") == 100


def test_data_is_there_before_its_notification(ends: Ends) -> None:
    """Persistent kernels in the default streams of both, which nothing may wait for."""
    blocks, rounds, nbytes = 4, 300, 4000
    ends.far.begin(
        "bad = cupy.zeros(1, 'uint64'); status.fill(0);"
        f"kernels.check_rounds({blocks}, 64, queue.value, board.value, u32({rounds}), u32({nbytes}), u32(100),"
        f" u64({PATIENCE}), status, bad); answer = (int(fetch(status)[0]), int(bad[0]))"
    )
    ends.status.fill(0)
    ends.kernels.write_rounds(
        blocks,
        64,
        ends.queue.value,
        ends.board.value,
        u32(rounds),
        u32(nbytes),
        u32(100),
        u64(PATIENCE),
        ends.status,
    )
    assert int(fetch(ends.status)[0]) == OK
    assert ends.far.finish() == (OK, 0)


def test_atomics_in_memory_of_the_host(ends: Ends) -> None:
    ends.far.run('words = ep.empty(8, "int64"); ep.share("words", words)')
    with ends.peer.device_queue(ends.memory, ends.peer["words"], way=ends.queue.way) as queue:
        times, threads, blocks = 5, 64, 2
        olds = cupy.zeros(times * threads * blocks, "uint64")
        got = ends.call("count_up", blocks, threads, queue.value, u64(16), i32(times), olds)
        assert got[0] == -1
        assert sorted(fetch(olds).tolist()) == list(range(olds.size))
        assert ends.far.run("answer = int(np.asarray(words)[2])") == olds.size
        old = cupy.zeros(1, "uint32")
        swap: tuple[Any, ...] = (queue.value, u64(0), u32(0), u32(1), old)
        assert ends.call("swap_one", 1, 1, *swap)[0] == NOT_ALLOWED  # of 4 bytes
        assert ends.call("count_up", 1, 1, queue.value, u64(12), i32(1), olds)[0] == MISALIGNED
        assert ends.call("count_up", 1, 1, queue.value, u64(64), i32(1), olds)[0] == OUT_OF_BOUNDS


@pytest.mark.parametrize("way", WAYS)
def test_calls_fail_when_the_peer_is_killed(way: str) -> None:
    with both_ends(THEIRS[-1], way=way) as ends:
        one = (ends.queue.value, i32(BLOCK), u64(0), u64(0), u64(NBYTES))
        assert ends.call("put_done", 1, 256, *one)[0] == OK
        os.kill(ends.far.process.pid, signal.SIGKILL)
        ends.far.process.join(30)
        status = OK
        for _ in range(100):  # until it is known
            if status != OK:
                break
            status = ends.call("put_done", 1, 256, *one)[0]
        assert status == FAILED
        assert ends.queue.error


def test_what_has_no_way(ends: Ends) -> None:
    with pytest.raises(ValueError, match="must lie on a GPU"):
        ends.peer.device_queue(ends.ep.empty(16, "uint8"), ends.peer["far"], way=ends.queue.way)
    ends.far.run('ep.share("host", ep.empty(16, "uint8"))')
    with pytest.raises(zh.RouteUnavailable, match="because it is the host's"):
        ends.peer.device_queue(ends.memory, ends.peer["host"], way="mapped")

"""Kernels that put, get, notify and wait by themselves, between two processes' GPUs."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np
import pytest
import torch
import zerohop as zh
from device_kernels import (
    BAD_SLOT,
    BLOCK,
    CLOSED,
    CORRUPT,
    MISALIGNED,
    NOT_ALLOWED,
    OK,
    OUT_OF_BOUNDS,
    THREAD,
    TIMED_OUT,
    WARP,
    Kernels,
    fetch,
)
from far_side import ADAPTER, POISON, THEIRS, FarSide, far_side

u32, u64, i32 = np.uint32, np.uint64, np.int32
NBYTES = 1 << 20
SLOTS = 512
TEAMS = {THREAD: 1, WARP: 32, BLOCK: 256}  # and its threads
REOPEN = f"board = ep.device_board(0, {SLOTS}, device=str(array.device))"
PATIENCE = 5_000_000_000  # nanoseconds

FAR = """
import cupy, numpy as np
from device_kernels import *
u32, u64, i32 = np.uint32, np.uint64, np.int32
"""


class Ends:
    """Here: an array on cuda:0, and a queue to one of the far side. There: the same the other way round."""

    def __init__(
        self, far: FarSide, ep: zh.Endpoint, device: str, kind: str, hears: str, way: str
    ) -> None:
        self.far, self.ep = far, ep
        memory = ep.empty(NBYTES, "uint8", device="cuda:0")
        self.array = torch.from_dlpack(memory).fill_(POISON)
        ep.share("near", memory)
        far.run(f"""
torch.cuda.set_device({device!r}); cupy.cuda.Device({int(device[-1])}).use()
array = allocate({kind!r}, {NBYTES}, {device!r}, ep)
memory = ep.register(array)
ep.share("far", memory)
board = ep.device_board(0, {SLOTS}, device={device!r})
kernels = Kernels()
status = cupy.zeros(8, "int32")
""")
        self.peer = ep.connect(far.address)
        far.run(
            f'peer = ep.accept(); queue = peer.device_queue(memory, peer["near"], hears={hears!r}, way={way!r})'
        )
        self.board = ep.device_board(0, SLOTS)
        self.memory = memory
        self.queue = self.peer.device_queue(memory, self.peer["far"], hears=hears, way=way)
        self.kernels = Kernels()
        self.status = cupy.zeros(8, "int32")

    def call(self, name: str, blocks: int, threads: int, *arguments: Any) -> list[int]:
        self.status.fill(-1)
        getattr(self.kernels, name)(blocks, threads, *arguments, self.status)
        return [int(x) for x in fetch(self.status)]

    def close(self) -> None:
        self.queue.close()
        self.board.close()


@contextmanager
def both_ends(
    device: str, kind: str = "own", hears: str = "both", way: str = "mapped"
) -> Iterator[Ends]:
    with zh.Endpoint(ADAPTER, p2p=True, timeout=10.0) as ep, far_side(setup=FAR) as far:
        ends = Ends(far, ep, device, kind, hears, way)
        try:
            yield ends
        finally:
            if far.process.is_alive():
                far.run("queue.close(); board.close()")
            ends.close()


@pytest.fixture(params=THEIRS, scope="module")
def lasting(request):
    with both_ends(request.param) as ends:
        yield ends


def poison(lasting: Ends) -> Ends:
    """The same for all tests of a file, with fresh content."""
    lasting.array.fill_(POISON)
    torch.cuda.synchronize()
    lasting.far.run("array.fill_(0xA5)")
    return lasting


@pytest.fixture
def ends(lasting):
    return poison(lasting)


def check_puts(ends: Ends, times: int) -> None:
    rng = random.Random(5)
    expected = np.full(NBYTES, POISON, np.uint8)
    ours = np.random.default_rng(5).integers(0, 256, NBYTES, np.uint8)
    ends.array.copy_(torch.from_numpy(ours))
    torch.cuda.synchronize()
    kernel = "put_one" if ends.queue.way == "mapped" else "put_done"
    for _ in range(times):
        team, threads = rng.choice(list(TEAMS.items()))
        nbytes = rng.choice([0, 1, 3, 8, 100, rng.randrange(70_000)])
        to, start = (rng.randrange(NBYTES - nbytes + 1) for _ in range(2))
        arguments = (ends.queue.value, i32(team), u64(to), u64(start), u64(nbytes))
        assert ends.call(kernel, 1, threads, *arguments)[0] == OK
        expected[to : to + nbytes] = ours[start : start + nbytes]
    there = ends.far.run("answer = array.cpu().numpy()")
    assert (there == expected).all()


def check_gets(ends: Ends, times: int) -> None:
    rng = random.Random(6)
    theirs = np.random.default_rng(6).integers(0, 256, NBYTES, np.uint8)
    ends.far.run(
        f"array.copy_(torch.from_numpy(np.random.default_rng(6).integers(0, 256, {NBYTES}, np.uint8)));"
        "torch.cuda.synchronize()"
    )
    expected = np.full(NBYTES, POISON, np.uint8)
    kernel = "get_one" if ends.queue.way == "mapped" else "get_done"
    for _ in range(times):
        team, threads = rng.choice(list(TEAMS.items()))
        nbytes = rng.choice([0, 1, 5, 16, 333, rng.randrange(70_000)])
        start, to = (rng.randrange(NBYTES - nbytes + 1) for _ in range(2))
        arguments = (ends.queue.value, i32(team), u64(start), u64(to), u64(nbytes))
        assert ends.call(kernel, 1, threads, *arguments)[0] == OK
        expected[to : to + nbytes] = theirs[start : start + nbytes]
    assert (ends.array.cpu().numpy() == expected).all()


def check_notifications(ends: Ends, team: int) -> None:
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


def write_rounds(ends: Ends, blocks: int, rounds: int, nbytes: int, patience: int) -> None:
    """Persistent kernels in the default streams of both, which nothing may wait for."""
    ends.far.begin(
        "bad = cupy.zeros(1, 'uint64'); status.fill(0);"
        f"kernels.check_rounds({blocks}, 64, queue.value, board.value, u32({rounds}), u32({nbytes}), u32(100),"
        f" u64({patience}), status, bad); answer = (int(fetch(status)[0]), int(bad[0]))"
    )
    ends.status.fill(0)
    what = (ends.queue.value, ends.board.value, u32(rounds), u32(nbytes), u32(100), u64(patience))
    ends.kernels.write_rounds(blocks, 64, *what, ends.status)
    assert int(fetch(ends.status)[0]) == OK
    assert ends.far.finish() == (OK, 0)


def test_put_at_random_places(ends):
    check_puts(ends, 300)


def test_get_at_random_places(ends):
    check_gets(ends, 300)


@pytest.mark.parametrize("team", TEAMS)
def test_what_does_not_fit_is_refused(ends, team):
    threads = TEAMS[team]
    top = 2**64 - 1
    for to, start, nbytes in [
        (NBYTES, 0, 1),
        (0, NBYTES - 7, 8),
        (NBYTES + 1, 0, 0),
        (0, 0, NBYTES + 1),
        (top, 0, 2),
        (1, 1, top),
    ]:
        arguments = (ends.queue.value, i32(team), u64(to), u64(start), u64(nbytes))
        assert ends.call("put_one", 1, threads, *arguments)[0] == OUT_OF_BOUNDS
        assert ends.call("get_one", 1, threads, *arguments)[0] == OUT_OF_BOUNDS
    whole = (ends.queue.value, i32(team), u64(0), u64(0), u64(8))
    for slot, value in [(65536, 1), (2**32 - 1, 1), (5, 0)]:
        got = ends.call("put_notify_one", 1, threads, *whole, u32(slot), u32(value))
        assert got[0] == BAD_SLOT
    for first, count in [(SLOTS, 1), (SLOTS - 1, 2), (0, 0), (3, 2**32 - 1), (2**32 - 1, 1)]:
        arguments = (ends.board.value, i32(team), u32(first), u32(count), u64(0), i32(1))
        assert ends.call("wait_any", 1, threads, *arguments)[0] == BAD_SLOT
    there = ends.far.run("answer = array.cpu().numpy()")
    assert (there == POISON).all()


def test_rights_are_kept():
    with both_ends(THEIRS[-1], hears="gpu") as ends:
        ends.far.run(
            'ep.share("only", ep.register(allocate("own", 4096, array.device, ep), writable=False))'
        )
        status = cupy.zeros(8, "int32")
        with ends.peer.device_queue(ends.memory[:4096], ends.peer["only"]) as queue:
            one = (queue.value, i32(THREAD), u64(0), u64(0), u64(8), status)
            ends.kernels.put_one(1, 1, *one)
            assert status[0] == NOT_ALLOWED
            ends.kernels.get_one(1, 1, *one)
            assert status[0] == OK
            ends.kernels.swap_one(1, 1, queue.value, u64(0), u32(0), u32(1), status[4:], status)
            assert status[0] == NOT_ALLOWED


@pytest.mark.parametrize("team", TEAMS)
def test_notifications_between_kernels(ends, team):
    check_notifications(ends, team)


def test_a_kernel_notifies_a_cpu_and_a_stream(ends):
    ends.far.run("board.close()")  # those slots are the CPU's again
    assert ends.call("notify_one", 1, 1, ends.queue.value, u32(7), u32(70))[0] == OK
    assert ends.far.run("answer = ep.wait_notify(7, timeout=5.0)") == 70
    ends.far.begin("answer = ep.wait_notify(8, timeout=20.0)")  # sleeps, and nobody wakes it
    pause = (ends.board.value, i32(THREAD), u32(30), u32(1), u64(300_000_000), i32(1))
    assert ends.call("wait_any", 1, 1, *pause)[0] == TIMED_OUT  # until it does
    assert ends.call("notify_one", 1, 1, ends.queue.value, u32(8), u32(80))[0] == OK
    assert ends.far.finish() == 80
    ends.far.begin("answer = ep.wait_notify(9, stream=torch.cuda.Stream(array.device)).wait(10.0)")
    assert ends.call("notify_one", 1, 1, ends.queue.value, u32(9), u32(90))[0] == OK
    assert ends.far.finish() == 90
    ends.far.run(REOPEN)


def test_cpus_and_streams_notify_a_kernel(ends):
    waiting = (
        f"kernels.wait_any(1, 1, board.value, i32(0), u32(11), u32(1), u64({PATIENCE}), i32(1), status);"
        "answer = fetch(status).tolist()"
    )
    ends.far.begin(waiting)
    ends.peer.notify(11, 5).wait()
    assert ends.far.finish()[:3] == [OK, 11, 5]
    ends.far.begin(waiting)
    stream = torch.cuda.Stream()
    there = ends.peer["far"]
    ends.peer.write(ends.memory, there, notify=(11, 6), stream=stream)
    assert ends.far.finish()[:3] == [OK, 11, 6]


def test_who_has_taken_a_notification_keeps_it(ends):
    """A kernel, or the CPU; and what nobody took is the CPU's when the board is closed."""
    take = (
        "kernels.wait_any(1, 1, board.value, i32(0), u32(20), u32(1), u64(0), i32(1), status);"
        "answer = fetch(status).tolist()[:3]"
    )
    ends.call("notify_one", 1, 1, ends.queue.value, u32(20), u32(1))
    assert ends.far.run(take) == [OK, 20, 1]
    assert ends.far.run("board.close(); answer = ep.peek_notify(20)") == 0
    ends.call("notify_one", 1, 1, ends.queue.value, u32(20), u32(2))
    assert ends.far.run("answer = ep.wait_notify(20, timeout=5.0)") == 2
    ends.far.run(REOPEN)
    assert ends.far.run(take)[0] == TIMED_OUT
    ends.call("notify_one", 1, 1, ends.queue.value, u32(20), u32(3))
    assert ends.far.run("answer = ep.peek_notify(20)") == 0  # it is for kernels
    assert ends.far.run("board.close(); answer = ep.wait_notify(20, timeout=5.0)") == 3
    ends.far.run(REOPEN)


def test_atomics_of_many_threads(ends):
    ends.far.run("array.zero_()")
    times, threads, blocks = 100, 128, 4
    olds = cupy.zeros(times * threads * blocks, "uint64")
    got = ends.call("count_up", blocks, threads, ends.queue.value, u64(64), i32(times), olds)
    assert got[0] == -1
    assert sorted(fetch(olds).tolist()) == list(range(olds.size))
    assert ends.far.run("answer = int(array[64:72].view(torch.int64))") == olds.size
    old = cupy.zeros(1, "uint32")
    for expected, then in [(0, 5), (0, 5), (5, 6)]:
        assert (
            ends.call("swap_one", 1, 1, ends.queue.value, u64(128), u32(expected), u32(then), old)[
                0
            ]
            == OK
        )
    assert ends.far.run("answer = int(array[128:132].view(torch.int32))") == 6
    swap = (ends.queue.value, u64(130), u32(0), u32(1), old)
    assert ends.call("swap_one", 1, 1, *swap)[0] == MISALIGNED
    swap = (ends.queue.value, u64(NBYTES), u32(0), u32(1), old)
    assert ends.call("swap_one", 1, 1, *swap)[0] == OUT_OF_BOUNDS


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("nbytes", [1, 100, 4096, 65537])
def test_checksums(ends, team, nbytes):
    """By kernels at both ends, and by the CPU; of data that was changed on its way, too."""
    threads = TEAMS[team]
    ours = np.random.default_rng(nbytes).integers(0, 256, NBYTES, np.uint8)
    ends.array.copy_(torch.from_numpy(ours))
    torch.cuda.synchronize()
    put = (ends.queue.value, i32(team), u64(16), u64(3), u64(nbytes), u32(50))
    check = (
        f"kernels.wait_checked(1, {threads}, board.value, i32({team}), u64(array.data_ptr() + 16), u64({nbytes}),"
        f" u32(50), u64({PATIENCE}), status); answer = int(fetch(status)[0])"
    )
    assert ends.call("put_checked", 1, threads, *put)[0] == OK
    assert ends.far.run(check) == OK
    ends.far.run("board.close()")
    assert ends.call("put_checked", 1, threads, *put)[0] == OK
    assert ends.far.run("answer = ep.wait_notify(50, timeout=5.0)") == (
        zh.crc32c(ours[3 : 3 + nbytes]) or 1
    )
    ends.far.run(REOPEN)
    assert ends.call("put_checked", 1, threads, *put)[0] == OK
    ends.far.run(f"array[{15 + nbytes}] ^= 4; torch.cuda.synchronize()")
    assert ends.far.run(check) == CORRUPT


def test_a_wait_ends_by_its_bound(ends):
    for team, threads in TEAMS.items():
        arguments = (ends.board.value, i32(team), u32(30), u32(4), u64(50_000_000), i32(1))
        status, _, _, microseconds = ends.call("wait_any", 1, threads, *arguments)[:4]
        assert status == TIMED_OUT
        assert 50_000 <= microseconds < 1_000_000


def test_a_wait_ends_when_the_peer_is_killed():
    with both_ends(THEIRS[-1]) as ends:
        check_a_kill(ends)


def check_a_kill(ends: Ends) -> None:
    ends.status.fill(-1)
    patience = u64(30_000_000_000)
    what = (ends.board.value, i32(WARP), u32(30), u32(1), patience, i32(1))
    ends.kernels.wait_any(1, 32, *what, ends.status)
    os.kill(ends.far.process.pid, signal.SIGKILL)
    ends.far.process.join(30)
    torch.cuda.synchronize()
    status, _, _, microseconds = fetch(ends.status).tolist()[:4]
    assert status == CLOSED
    assert microseconds < 6_000_000
    # What it has mapped is there as long as the queue is open: a put harms nobody.
    one = (ends.queue.value, i32(BLOCK), u64(0), u64(0), u64(NBYTES))
    assert ends.call("put_one", 1, 256, *one)[0] == OK


@pytest.mark.parametrize("kind", ["cudaMalloc", "own"])
def test_kinds_of_memory(kind):
    with both_ends(THEIRS[-1], kind, "gpu") as ends:
        assert ends.queue.route.kind == "p2p"
        assert "kernels of cuda:0 load from and store to" in ends.queue.route.reason
        ends.array.fill_(3)
        torch.cuda.synchronize()
        one = (ends.queue.value, i32(BLOCK), u64(0), u64(0), u64(NBYTES))
        assert ends.call("put_one", 1, 512, *one)[0] == OK
        assert ends.far.run("answer = int((array == 3).sum())") == NBYTES


def test_what_has_no_way(ends):
    there = ends.peer["far"]
    host = ends.ep.empty(16, "uint8")
    with pytest.raises(ValueError, match="must lie on a GPU"):
        ends.peer.device_queue(host, there)
    with pytest.raises(ValueError, match="contiguous"):
        ends.peer.device_queue(ends.memory[::2], there[: NBYTES // 2])
    with pytest.raises(ValueError, match="hears must be"):
        ends.peer.device_queue(ends.memory, there, hears="nobody")
    ends.far.run('ep.share("host", ep.empty(16, "uint8"))')
    with pytest.raises(zh.RouteUnavailable, match="because it is the host's"):
        ends.peer.device_queue(ends.memory, ends.peer["host"], way="mapped")
    with pytest.raises(ValueError, match="way must be"):
        ends.peer.device_queue(ends.memory, there, way="quick")
    with pytest.raises(IndexError, match="slot"):
        ends.ep.device_board(65536)
    queue = ends.peer.device_queue(ends.memory, there)
    queue.close()
    with pytest.raises(zh.Error, match="was closed"):
        _ = queue.value

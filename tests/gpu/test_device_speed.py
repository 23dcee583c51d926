"""How fast kernels communicate by themselves; beside what the same bare accesses take."""

import time
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import pytest
import torch
import zerohop as zh
from device_kernels import fetch
from far_side import far_side
from test_device_queue import FAR, Ends, both_ends

u32, u64, i32 = np.uint32, np.uint64, np.int32
TIMES = 2000  # puts of each thread

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="with one GPU it is the turns of the two processes that are measured",
)


@pytest.fixture(params=["gpu", "both"], scope="module")
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with both_ends("cuda:1", hears=request.param) as ends:
        yield ends


def one_way(ends: Ends, team: str, threads: int, nbytes: int, rounds: int) -> float:
    arguments = f"u32({rounds}), u64({nbytes}), u32(40)"
    ends.far.begin(
        f"took = cupy.zeros(1, 'uint64'); status.fill(0); kernels.ping_pong_{team}(1, {threads}, queue.value,"
        f" board.value, {arguments}, i32(0), status, took); answer = int(fetch(status)[0])"
    )
    took = cupy.zeros(1, "uint64")
    ends.status.fill(0)
    kernel = getattr(ends.kernels, f"ping_pong_{team}")
    kernel(
        1,
        threads,
        ends.queue.value,
        ends.board.value,
        u32(rounds),
        u64(nbytes),
        u32(40),
        i32(1),
        ends.status,
        took,
    )
    cupy.cuda.runtime.deviceSynchronize()
    assert int(fetch(ends.status)[0]) == 0
    assert ends.far.finish() == 0
    return int(took[0]) * 1e-9 / (2 * rounds)


def test_rows_of_one_way(ends: Ends, rows: Any, request: pytest.FixtureRequest) -> None:
    hears = request.node.callspec.params["ends"]
    for team, threads, nbytes in [
        ("thread", 1, 8),
        ("block", 32, 8),
        ("block", 256, 4096),
        ("block", 512, 16384),
        ("block", 1024, 16384),
        ("block", 512, 65536),
        ("block", 1024, 65536),
    ]:
        seconds = min(one_way(ends, team, threads, nbytes, 2000) for _ in range(3))
        rows.add(
            "put_notify by kernels, one way",
            hears=hears,
            team=team,
            threads=threads,
            nbytes=nbytes,
            seconds=seconds,
        )


def seconds_of(launch: Any) -> float:
    best = float("inf")
    for _ in range(5):
        begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        launch()
        ended.record()
        ended.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(begun, ended) * 1e-3)
    return best


@pytest.mark.parametrize("ends", ["gpu"], indirect=True)
def test_rows_of_rates(ends: Ends, rows: Any) -> None:
    for blocks, threads in [(1, 1), (1, 32), (1, 512), (132, 512)]:
        seconds = seconds_of(
            lambda b=blocks, t=threads: ends.kernels.put_many(
                b, t, ends.queue.value, u32(TIMES), u64(8)
            )
        )
        rows.add(
            "8 B puts by kernels",
            blocks=blocks,
            threads=threads,
            per_second=blocks * threads * TIMES / seconds,
        )


@pytest.mark.parametrize("way", ["proxy", "direct"])
def test_rows_of_entries(rows: Any, way: str) -> None:
    """What it costs to write entries into a ring, and until they are carried out."""
    with both_ends("cuda:1", way=way) as ends:
        for threads, times in [(1, 512), (32, 16), (128, 4)]:
            took = cupy.zeros(2, "uint64")
            best = [float("inf")] * 2
            for _ in range(5):
                ends.status.fill(0)
                ends.kernels.put_values(1, threads, ends.queue.value, u32(times), ends.status, took)
                assert int(fetch(ends.status)[0]) == 0
                best = [min(b, int(t)) for b, t in zip(best, fetch(took), strict=True)]
            each = threads * times * 1e9
            rows.add(
                "entries of 8 B written by kernels",
                way=way,
                threads=threads,
                seconds=best[0] / each,
                done_seconds=best[1] / each,
            )
        for nbytes in (8, 4096, 65536):
            seconds = min(one_way(ends, "thread", 1, nbytes, 200) for _ in range(3))
            rows.add("put_notify by a ring, one way", way=way, nbytes=nbytes, seconds=seconds)


def test_rows_of_bandwidth(rows: Any) -> None:
    nbytes = 256 << 20
    with zh.Endpoint("soft0", timeout=10.0) as ep, far_side(setup=FAR) as far:
        far.run(
            f'torch.cuda.set_device(1); big = ep.empty({nbytes}, "uint8", device="cuda:1"); ep.share("big", big)'
        )
        ours = ep.empty(nbytes, "uint8", device="cuda:0")
        peer = ep.connect(far.address)
        from device_kernels import Kernels

        kernels = Kernels()
        array = torch.from_dlpack(ours)
        array.random_(0, 255)
        there = torch.empty(nbytes, dtype=torch.uint8, device="cuda:1")
        bare = seconds_of(lambda: there.copy_(array))
        with peer.device_queue(ours, peer["big"], hears="gpu") as queue:
            for blocks, threads, piece in [
                (66, 512, 1 << 16),
                (132, 512, 1 << 16),
                (132, 1024, 1 << 16),
                (264, 512, 1 << 16),
                (132, 512, 1 << 14),
            ]:
                seconds = seconds_of(
                    lambda b=blocks, t=threads, p=piece: kernels.put_wide(
                        b, t, queue.value, u64(nbytes), u64(p)
                    )
                )
                rows.add(
                    "put by one kernel",
                    blocks=blocks,
                    threads=threads,
                    piece=piece,
                    nbytes=nbytes,
                    bytes_per_second=nbytes / seconds,
                    copy_engine_bytes_per_second=nbytes / bare,
                )
        far.run("del big")


@pytest.mark.parametrize(("blocks", "nbytes", "rounds"), [(64, 64, 160_000), (64, 4096, 8000)])
@pytest.mark.parametrize("ends", ["gpu", "both"], indirect=True)
def test_no_notification_before_its_data(
    ends: Ends, rows: Any, blocks: int, nbytes: int, rounds: int
) -> None:
    """The first: 10**7 rounds and more."""
    patience = 20_000_000_000
    ends.far.begin(
        f"bad = cupy.zeros(1, 'uint64'); status.fill(0);"
        f"kernels.check_rounds({blocks}, 64, queue.value, board.value, u32({rounds}), u32({nbytes}), u32(100),"
        f" u64({patience}), status, bad); answer = (int(fetch(status)[0]), int(bad[0]))"
    )
    ends.status.fill(0)
    began = time.monotonic()
    ends.kernels.write_rounds(
        blocks,
        64,
        ends.queue.value,
        ends.board.value,
        u32(rounds),
        u32(nbytes),
        u32(100),
        u64(patience),
        ends.status,
    )
    cupy.cuda.runtime.deviceSynchronize()
    took = time.monotonic() - began
    assert int(fetch(ends.status)[0]) == 0
    assert ends.far.finish() == (0, 0)
    rows.add(
        "kernels: rounds of data, notification and answer",
        blocks=blocks,
        nbytes=nbytes,
        rounds=blocks * rounds,
        seconds=took,
    )

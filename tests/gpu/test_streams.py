"""Transfers in the order of streams, and streams that wait for them, between two processes' GPUs."""

import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import zerohop as zh
from far_side import FarSide, far_side

THEIRS = [f"cuda:{i}" for i in range(min(2, torch.cuda.device_count()))]
NBYTES = 1 << 22
ROUNDS = 100
GO, PING, PONG = 1, 2, 3  # slots

# What the other process does: waits for each ping on its stream, and answers with what it got.
FAR = f"""
def pong(device, nbytes, rounds):
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for value in range(1, rounds + 1):
            ep.wait_notify({PING}, stream=stream)
            reply[:nbytes] = array[:nbytes] + 0xA5
            peer.write(replies[:nbytes], near[:nbytes], notify=({PONG}, value), stream=stream)

def pong_only(device, nbytes, rounds):
    stream = torch.cuda.Stream(device)
    for value in range(1, rounds + 1):
        ep.wait_notify({PING}, stream=stream)
        peer.write(memory[:nbytes], near[:nbytes], notify=({PONG}, value), stream=stream)
    other = torch.cuda.Stream(device)  # in no order with the first
    peer.write(memory[:8], near[:8], notify=({GO}, 1), stream=other)
"""


@pytest.fixture(params=THEIRS)
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Any, zh.Endpoint, zh.Peer, FarSide]]:
    with zh.Endpoint("soft0", p2p=True, timeout=5.0) as ep, far_side(setup=FAR) as far:
        array = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda:0")
        ep.share("near", ep.register(array))
        far.run(f"""
array = allocate("own", {NBYTES}, {request.param!r}, ep)
memory = ep.register(array)
ep.share("far", memory)
reply = torch.empty_like(array)
replies = ep.register(reply)
device = {request.param!r}
""")
        peer = ep.connect(far.address)
        far.run('peer = ep.accept(); near = peer["near"]')
        yield array, ep, peer, far


def test_data_is_there_when_the_stream_goes_on(ends: Any) -> None:
    array, ep, peer, far = ends
    nbytes = 100_000
    far.begin(f"pong(device, {nbytes}, 50)")
    stream = torch.cuda.Stream()
    there, ping = peer["far"], torch.empty_like(array)
    pings, sums = ep.register(ping), []
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for value in range(1, 51):
            ping[:nbytes] = value
            peer.write(pings[:nbytes], there[:nbytes], notify=(PING, value), stream=stream)
            heard = ep.wait_notify(PONG, stream=stream)
            sums.append(array[:nbytes].clone())
    assert heard.wait(20.0) == 50
    stream.synchronize()
    for value, got in enumerate(sums, 1):
        assert bool((got == (0xA5 + value) % 256).all()), f"round {value}"
    far.finish()


def ping_pong(ends: Any, nbytes: int) -> dict[str, float]:
    """Seconds of one way, everything enqueued ahead on both sides, and of the posting calls."""
    array, ep, peer, far = ends
    stream = torch.cuda.Stream()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    mine, there = ep.register(array)[:nbytes], peer["far"][:nbytes]
    waiting = ep.wait_notify(GO, stream=stream)
    begun.record(stream)
    posts, waits = [], []
    for value in range(1, ROUNDS + 1):
        began = time.perf_counter()
        peer.write(mine, there, notify=(PING, value), stream=stream)
        posted = time.perf_counter()
        ep.wait_notify(PONG, stream=stream)
        waits.append(time.perf_counter() - posted)
        posts.append(posted - began)
    ended.record(stream)
    far.begin(f"pong_only(device, {nbytes}, {ROUNDS})")
    waiting.wait(20.0)
    stream.synchronize()
    far.finish()
    return {
        "one_way": begun.elapsed_time(ended) / 1e3 / (2 * ROUNDS),
        "posting": sorted(posts)[ROUNDS // 2],
        "posting_of_wait": sorted(waits)[ROUNDS // 2],
    }


# Where there are two: on one GPU it is the time slice of the two processes that is measured.
@pytest.mark.parametrize("ends", [THEIRS[-1]], indirect=True)
def test_rows_of_one_way(ends: Any, rows: Any) -> None:
    for nbytes in (8, 512, 4096, 16384, 65536, 262144, 1 << 20, 1 << 22):
        ping_pong(ends, nbytes)
        best = min((ping_pong(ends, nbytes) for _ in range(3)), key=lambda row: row["one_way"])
        rows.add("stream to stream", theirs=THEIRS[-1], nbytes=nbytes, **best)


def test_a_stream_waits_for_a_transfer(ends: Any) -> None:
    array, ep, peer, _ = ends
    mine, there = ep.register(array), peer["far"]
    array.fill_(7)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    first.wait_stream(torch.cuda.current_stream())
    for _ in range(50):
        written = peer.write(mine, there, stream=first)
        written.wait_on(second)
        back = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda:0")
        second.wait_stream(torch.cuda.current_stream())
        read = peer.read(there, ep.register(back), stream=second)
        read.wait()
        assert bool((back == 7).all())
        array.fill_(7)
        first.wait_stream(torch.cuda.current_stream())


def test_a_wait_ends_by_its_bound(ends: Any, monkeypatch: Any) -> None:
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: said.append(str(failure.exc_value)))
    _, ep, _, _ = ends
    stream = torch.cuda.Stream()
    began = time.monotonic()
    waiting = ep.wait_notify(99, timeout=0.2, stream=stream)
    stream.synchronize()
    assert 0.15 < time.monotonic() - began < 10
    with pytest.raises(zh.TransferTimeout, match="slot 99"):
        waiting.wait()
    assert "slot 99" in said[0]


def test_streams_of_other_libraries(ends: Any) -> None:
    import cupy

    with warnings.catch_warnings(action="ignore"):  # of NumPy, with a Numba that is older
        from numba import cuda

    array, ep, peer, _ = ends
    mine, there = ep.register(array), peer["far"]
    torch.cuda.synchronize()
    streams = [
        cupy.cuda.Stream(non_blocking=True),
        cuda.stream(),
        0,
        1,
        torch.cuda.current_stream(),
    ]
    for stream in [*streams, torch.cuda.Stream().cuda_stream]:
        peer.write(mine, there, stream=stream).wait()
    with pytest.raises(TypeError, match="stream must be"):
        peer.write(mine, there, stream="cuda:0")
    captured = torch.cuda.Stream()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=captured):
        array.add_(1)  # an empty graph is warned of
        with pytest.raises(zh.RouteUnavailable, match="CUDA graph"):
            peer.write(mine, there, stream=captured)

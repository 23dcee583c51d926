"""Transfers in the order of streams, and streams that wait for them, between two processes' GPUs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import zerohop as zh
from far_side import THEIRS, FarSide, far_side
from frameworks import usable

NBYTES = 1 << 22
PING, PONG = 2, 3  # slots

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
"""


@pytest.fixture(params=THEIRS)
def ends(request):
    with zh.Endpoint("soft0", p2p=True, timeout=5.0) as ep, far_side(setup=FAR) as far:
        array = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda:0")
        ep.share("near", ep.register(array))
        far.hold("own", NBYTES, request.param)
        far.run(
            "reply = torch.empty_like(array); replies = ep.register(reply); device = array.device"
        )
        peer = ep.connect(far.address)
        far.run('peer = ep.accept(); near = peer["near"]')
        yield array, ep, peer, far


def test_data_is_there_when_the_stream_goes_on(ends):
    array, ep, peer, far = ends
    nbytes = 100_000
    far.begin(f"pong(device, {nbytes}, 50)")
    stream = torch.cuda.Stream()
    there, ping = peer["array"], torch.empty_like(array)
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


def test_a_stream_waits_for_a_transfer(ends):
    array, ep, peer, _ = ends
    mine, there = ep.register(array), peer["array"]
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


def test_a_wait_ends_by_its_bound(ends, reported):
    _, ep, _, _ = ends
    stream = torch.cuda.Stream()
    began = time.monotonic()
    waiting = ep.wait_notify(99, timeout=0.2, stream=stream)
    stream.synchronize()
    assert 0.15 < time.monotonic() - began < 10
    with pytest.raises(zh.TransferTimeout, match="slot 99"):
        waiting.wait()
    assert "slot 99" in reported[0]


def test_a_process_that_loads_a_kernel_behind_a_wait_is_not_lost(ends):
    """CUDA waits for all streams to load one, and holds up what is given to the GPU meanwhile."""
    _, _, peer, far = ends
    took = far.run("""
import time
stream, other = torch.cuda.Stream(), torch.cuda.Stream()
values = torch.ones(3, device=device)
torch.cuda.synchronize()
ep.wait_notify(99, timeout=5.0, stream=stream)
begun = time.monotonic()
with torch.cuda.stream(other):
    torch.special.i1e(values)
answer = time.monotonic() - begun
""")
    assert took > 3.6  # longer than a peer may be silent; unless kernels are loaded eagerly
    assert peer.why_lost is None
    assert far.run("answer = peer.why_lost") is None


# Each waits in a stream for what the other notifies from a second one, behind its write in the first.
MUTUAL = """
def rounds(ep, peer, mine, count):
    work, aside = torch.cuda.Stream(), torch.cuda.Stream()
    memory, gate = ep.register(mine), ep.register(torch.ones(8, device="cuda:0"))
    there, gate_there = peer["inbox"], peer["gate"]
    mine.add_(0)  # loads the kernel: CUDA waits for all streams to load one, and one stream is to wait for us
    torch.cuda.synchronize()
    kept = []
    for value in range(1, count + 1):
        kept.append(ep.wait_notify(1, stream=work))
        with torch.cuda.stream(work):
            mine.add_(1)
        kept.append(peer.write(memory, there, notify=(2, value), stream=work))
        kept.append(peer.write(gate, gate_there, notify=(1, value), stream=aside))
        assert ep.wait_notify(2) == value
        for transfer in kept:
            transfer.wait()
        kept.clear()
    work.synchronize()
"""


SHARED = f"""
inbox = torch.zeros({NBYTES}, dtype=torch.uint8, device="cuda:0")
gate = torch.zeros(8, device="cuda:0")
ep.share("inbox", ep.register(inbox))
ep.share("gate", ep.register(gate))
"""


@contextmanager
def checked_ends(p2p: bool, integrity: int) -> Iterator[tuple[zh.Endpoint, zh.Peer, FarSide]]:
    with (
        zh.Endpoint("soft0", p2p=p2p, integrity=integrity, timeout=5.0) as ep,
        far_side(p2p) as far,
    ):
        far.run(SHARED)
        yield ep, ep.connect(far.address), far


@pytest.mark.parametrize("integrity", [0, 1])
def test_streams_that_wait_for_each_other(integrity):
    with checked_ends(True, integrity) as (ep, peer, far):
        names: dict[str, Any] = {"torch": torch, "ep": ep}
        exec(SHARED + MUTUAL, names)  # noqa: S102
        far.run(MUTUAL)
        far.begin("rounds(ep, ep.accept(), torch.zeros_like(inbox), 10)")
        names["rounds"](ep, peer, torch.zeros_like(names["inbox"]), 10)
        far.finish()
        assert bool((names["inbox"] == 10).all())


def test_a_stream_stands_until_its_write_is_compared():
    with checked_ends(True, 1) as (ep, peer, far):
        mine = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda:0")
        memory, there, stream = ep.register(mine), peer["inbox"], torch.cuda.Stream()
        torch.cuda.synchronize()
        written = []
        with torch.cuda.stream(stream):
            for value in range(1, 21):
                mine.fill_(value)  # behind the comparison of the write before
                written.append(peer.write(memory, there, notify=(1, value), stream=stream))
        for transfer in written:
            transfer.wait()
        assert far.run("answer = int(inbox.min()), ep.wait_notify(1)") == (20, 20)


def test_where_the_call_would_wait_for_a_stream_that_waits_it_is_refused():
    with checked_ends(False, 1) as (ep, peer, far):
        memory = ep.register(torch.ones(NBYTES, dtype=torch.uint8, device="cuda:0"))
        there, stream = peer["inbox"], torch.cuda.Stream()
        heard = ep.wait_notify(1, stream=stream)
        with pytest.raises(zh.RouteUnavailable, match="waits for notification slot 1, and this"):
            peer.write(memory, there, stream=stream)
        far.run("ep.accept().notify(1, 1)")
        heard.wait()
        peer.write(memory, there, stream=stream).wait()
        assert far.run("answer = int(inbox.min())") == 1


STREAMS = {
    "cupy": ("cupy", lambda cupy: [cupy.cuda.Stream(non_blocking=True)]),
    "numba-cuda": ("numba.cuda", lambda cuda: [cuda.stream()]),
    "torch": ("torch", lambda torch: [torch.cuda.current_stream(), torch.cuda.Stream()]),
    "handles": ("torch", lambda torch: [0, 1, torch.cuda.Stream().cuda_stream]),
}


@pytest.mark.parametrize("library", STREAMS)
def test_streams_of_other_libraries(ends, library):
    array, ep, peer, _ = ends
    module, streams = STREAMS[library]
    mine, there = ep.register(array), peer["array"]
    torch.cuda.synchronize()
    for stream in streams(usable(module, library)):
        peer.write(mine, there, stream=stream).wait()


def test_streams_that_cannot_be_used(ends):
    array, ep, peer, _ = ends
    mine, there = ep.register(array), peer["array"]
    with pytest.raises(TypeError, match="stream must be"):
        peer.write(mine, there, stream="cuda:0")

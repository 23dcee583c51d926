"""Captured calls in CUDA graphs: of two Endpoints in this process, and with another process."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import zerohop as zh
from far_side import THEIRS, far_side
from frameworks import usable
from graphs import GPU, Side, captured, replay

REPLAYS = 1000
DATA, CREDIT = 7, 8  # slots


def await_word(reported: list[str], part: str) -> None:
    deadline = time.monotonic() + 10
    while not any(part in each for each in reported):
        assert time.monotonic() < deadline, f"{part!r} is not in {reported}"
        time.sleep(0.01)


def ping_pong(near: Side, far: Side, total: torch.Tensor) -> list[torch.cuda.CUDAGraph]:
    """One graph fills, writes, notifies and awaits the answer; the other adds up what it was sent. No CPU takes part."""

    def send() -> None:
        near.array.add_(1)
        near.peer.write(near.memory, far.memory.remote, notify=(DATA, 1), stream=near.stream)
        near.ep.wait_notify(CREDIT, stream=near.stream)

    def take() -> None:
        far.ep.wait_notify(DATA, stream=far.stream)
        total.add_(far.array)
        far.peer.notify(CREDIT, 1, stream=far.stream)

    return [captured(near.stream, send), captured(far.stream, take)]


def test_a_thousand_replays_on_both_sides(sides):
    near, far = sides
    total = torch.zeros_like(far.array)
    sending, taking = ping_pong(near, far, total)
    for _ in range(REPLAYS):
        replay(sending, near.stream)
        replay(taking, far.stream)
    torch.cuda.synchronize()
    assert bool((total == REPLAYS * (REPLAYS + 1) / 2).all())
    assert near.ep.peek_notify(CREDIT) == far.ep.peek_notify(DATA) == 0


def test_a_thread_for_each_side(sides):
    total = torch.zeros_like(sides[1].array)
    graphs = ping_pong(*sides, total)

    def run(side: Side, graph: torch.cuda.CUDAGraph) -> None:
        for _ in range(REPLAYS):
            replay(graph, side.stream)
        side.stream.synchronize()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, sides, graphs, timeout=60))
    assert bool((total == REPLAYS * (REPLAYS + 1) / 2).all())


FAR = f"""
def make(device):
    torch.cuda.set_device(device)
    global graph, stream
    stream = torch.cuda.Stream(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        ep.wait_notify({DATA}, stream=stream)
        reply.copy_(array).add_(1)
        peer.write(replies, near, notify=({CREDIT}, 1), stream=stream)

def play(device, rounds):
    torch.cuda.set_device(device)
    with torch.cuda.stream(stream):
        for _ in range(rounds):
            graph.replay()
    stream.synchronize()
"""
NBYTES = 1 << 20


@pytest.fixture(params=THEIRS)
def ends(request: Any) -> Iterator[Any]:
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side(setup=FAR) as far:
        array = torch.zeros(NBYTES, dtype=torch.uint8, device=GPU)
        ep.share("near", ep.register(array))
        far.hold("own", NBYTES, request.param)
        far.run("array.zero_(); reply = torch.zeros_like(array); replies = ep.register(reply)")
        peer = ep.connect(far.address)
        far.run('device = array.device; peer = ep.accept(); near = peer["near"]')
        yield array, ep, peer, far
        torch.cuda.synchronize()


def test_a_thousand_replays_between_two_processes(ends):
    array, ep, peer, far = ends
    far.run("make(device)")
    mine = torch.zeros_like(array)
    memory, there, stream = ep.register(mine), peer["array"], torch.cuda.Stream()
    wrong = torch.zeros(1, dtype=torch.int64, device=GPU)
    torch.cuda.synchronize()

    def round_trip() -> None:
        mine.add_(1)
        peer.write(memory, there, notify=(DATA, 1), stream=stream)
        ep.wait_notify(CREDIT, stream=stream)
        wrong.add_((array != mine + 1).sum())

    graph = captured(stream, round_trip)
    far.begin(f"play(device, {REPLAYS})")
    for _ in range(REPLAYS):
        replay(graph, stream)
    stream.synchronize()
    far.finish()
    assert int(wrong) == 0
    assert int(array[0]) == (REPLAYS + 1) % 256


def test_a_process_that_is_killed_ends_the_waits_of_replays(ends, reported):
    array, ep, peer, far = ends
    memory, there, stream = ep.register(array), peer["array"], torch.cuda.Stream()
    torch.cuda.synchronize()
    waiting = captured(stream, lambda: ep.wait_notify(DATA, stream=stream))
    writing = captured(stream, lambda: peer.write(memory, there, notify=(DATA, 1), stream=stream))
    replay(writing, stream)
    stream.synchronize()
    replay(waiting, stream)
    far.process.kill()
    begun = time.monotonic()
    stream.synchronize()
    assert time.monotonic() - begun < 10
    await_word(reported, "a CUDA graph on cuda:0 waited for notification slot 7 in vain")
    await_word(reported, "is no longer connected, and CUDA graphs of this process contain calls")
    for _ in range(100):
        replay(writing, stream)  # harmless
    stream.synchronize()
    with pytest.raises(zh.PeerLost):
        peer.write(memory, there)


def test_memory_that_its_owner_closes_is_left_out(ends, reported):
    array, ep, peer, far = ends
    memory, there, stream = ep.register(array), peer["array"], torch.cuda.Stream()
    torch.cuda.synchronize()
    writing = captured(stream, lambda: peer.write(memory, there, stream=stream))
    replay(writing, stream)
    stream.synchronize()
    took = far.run("""
import time
begun = time.monotonic()
memory.close()
answer = time.monotonic() - begun
""")
    assert took < 4
    await_word(reported, "has closed memory that CUDA graphs")
    for _ in range(100):
        replay(writing, stream)
    stream.synchronize()


def test_values_count_on(sides):
    near, far = sides
    graph = captured(
        near.stream,
        lambda: near.peer.write(
            near.memory, far.memory.remote, notify=(DATA, 41), stream=near.stream
        ),
    )
    for value in range(41, 61):
        near.array.fill_(value)
        torch.cuda.synchronize()
        replay(graph, near.stream)
        assert far.ep.wait_notify(DATA) == value
        assert bool((far.array == value).all())


def test_notifications_of_replays_wait_for_replays(sides):
    near, far = sides
    notifying = captured(near.stream, lambda: near.peer.notify(DATA, 1, stream=near.stream))
    waiting = captured(far.stream, lambda: far.ep.wait_notify(DATA, timeout=0.2, stream=far.stream))
    for _ in range(50):
        replay(notifying, near.stream)
    near.stream.synchronize()
    begun = time.monotonic()
    for _ in range(50):
        replay(waiting, far.stream)
    far.stream.synchronize()
    assert time.monotonic() - begun < 0.2 * 50 / 2


def test_a_read_and_a_write_of_many_bytes(sides):
    near, far = sides
    count = 3_000_001
    source = torch.empty(count, dtype=torch.uint8, device=GPU)
    there = torch.empty_like(source)
    back = torch.empty_like(source)
    ours, mid, last = near.ep.register(source), far.ep.register(there), near.ep.register(back)
    second = torch.cuda.Stream(GPU)

    def both() -> None:
        written = near.peer.write(ours, mid.remote, stream=near.stream)
        written.wait_on(second)  # the other stream becomes part of the graph
        near.peer.read(mid.remote, last, stream=second)
        near.stream.wait_stream(second)

    torch.cuda.synchronize()
    graph = captured(near.stream, both)
    for seed in range(20):
        torch.manual_seed(seed)
        source.copy_(torch.randint(0, 256, (count,), dtype=torch.uint8, device=GPU))
        torch.cuda.synchronize()
        replay(graph, near.stream)
        torch.cuda.synchronize()
        assert torch.equal(back, source), seed


def test_a_graph_waits_for_a_transfer_begun_before(sides):
    near, far = sides
    near.array.fill_(3)
    torch.cuda.synchronize()
    with torch.cuda.stream(near.stream):
        torch.cuda._sleep(100_000_000)
    written = near.peer.write(near.memory, far.memory.remote, stream=near.stream)
    seen = torch.zeros_like(far.array)
    stream = torch.cuda.Stream(GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):  # torch.cuda.graph() would wait for the write first
        graph.capture_begin()
        written.wait_on(stream)
        seen.copy_(far.array)
        graph.capture_end()
    for _ in range(3):
        replay(graph, stream)
    torch.cuda.synchronize()
    assert bool((seen == 3).all())


def test_a_replay_that_waits_in_vain_says_so(sides, reported):
    near, _ = sides
    waiting = captured(
        near.stream, lambda: near.ep.wait_notify(99, timeout=0.2, stream=near.stream)
    )
    begun = time.monotonic()
    replay(waiting, near.stream)
    near.stream.synchronize()
    assert 0.15 < time.monotonic() - begun < 10
    await_word(reported, "waited for notification slot 99, which did not come in 0.2 s")
    with pytest.raises(zh.TransferTimeout, match="slot 99"):
        near.ep.wait_notify(5, stream=near.stream)


def test_a_graph_keeps_arrays_and_gives_them_back(sides):
    near, far = sides
    torch.cuda.synchronize()
    gc.collect()  # what earlier cases left
    before = torch.cuda.memory_allocated(GPU)
    arrays = [torch.full((1000,), 7.0, dtype=torch.float64, device=GPU)]
    with_array = torch.cuda.memory_allocated(GPU)
    assert with_array > before

    def write() -> None:
        near.peer.write(arrays.pop(), far.memory.remote, stream=near.stream)

    torch.cuda.synchronize()
    graph: Any = captured(near.stream, write)
    gc.collect()
    replay(graph, near.stream)
    torch.cuda.synchronize()
    came = far.array.cpu()  # a comparison on the GPU would leave memory of its own
    assert bool((came == 7).all())
    # PyTorch's generators may have a state of each graph, which is smaller than the array.
    assert torch.cuda.memory_allocated(GPU) >= with_array
    del graph
    deadline = time.monotonic() + 10
    while torch.cuda.memory_allocated(GPU) >= with_array:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


def test_graphs_of_cupy(sides):
    cupy = usable("cupy", "cupy")
    near, far = sides
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        near.peer.write(near.memory, far.memory.remote, notify=(DATA, 1), stream=stream)
        far.ep.wait_notify(DATA, stream=stream)
        graph = stream.end_capture()
    for value in range(1, 101):
        near.array.fill_(value)
        torch.cuda.synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert bool((far.array == value).all())


def test_a_notification_in_a_stream_follows_its_work(sides):
    near, far = sides
    near.array.fill_(5)
    torch.cuda.synchronize()
    with torch.cuda.stream(near.stream):
        torch.cuda._sleep(100_000_000)
        near.peer.write(near.memory, far.memory.remote, stream=near.stream)
        near.peer.notify(DATA, 3, stream=near.stream)
    assert far.ep.peek_notify(DATA) == 0
    assert far.ep.wait_notify(DATA) == 3
    assert bool((far.array == 5).all())

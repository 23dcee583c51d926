"""GPU memory that no device reaches: every byte goes through pinned chunks of the host, and none is touched otherwise.

soft0 copies by itself; with registration="staged" the Endpoints do, as they do on adapters without GPUDirect.
"""

from typing import Any

import pytest
import torch
import zerohop as zh
from device_memory import GRANULE, managed, pooled, reserve, tensor

GUARD = 1000  # bytes on either side of what may be written
POISON = 0xA5
SIZES = [1, 255, 256, 257, 4096, 65_537, 524_288, 5_000_001]
CHUNKS = [1 << n for n in range(16, 21)]


class Side:
    """An Endpoint whose arrays on GPUs are registered in one way."""

    def __init__(self, endpoint: zh.Endpoint, how: str | None) -> None:
        self.endpoint, self.how = endpoint, how

    def register(self, array: Any) -> zh.Memory:
        return self.endpoint.register(array, registration=self.how if array.is_cuda else None)


@pytest.fixture(
    params=[
        (devices, how) for devices in ("soft0", "soft0,soft0@127.0.0.2") for how in (None, "staged")
    ],
    ids=str,
)
def ends(request):
    devices, how = request.param

    def endpoint() -> zh.Endpoint:
        return zh.Endpoint(devices, stripe_bytes=1 << 16, timeout=20.0, p2p=0)

    with endpoint() as a, endpoint() as b:
        yield Side(a, how), Side(b, how), a.connect(b.address)


def random_bytes(nbytes: int, device: str) -> Any:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=device)


def poisoned(nbytes: int, device: str) -> Any:
    return torch.full((nbytes + 2 * GUARD,), POISON, dtype=torch.uint8, device=device)


def check(target: Any, wanted: Any) -> None:
    nbytes = wanted.numel()
    assert torch.equal(target[GUARD : GUARD + nbytes].cpu(), wanted.cpu())
    assert bool((target[:GUARD] == POISON).all())
    assert bool((target[GUARD + nbytes :] == POISON).all())


@pytest.mark.parametrize(
    ("ours", "theirs"), [("cuda:0", "cuda:0"), ("cuda:0", "cpu"), ("cpu", "cuda:0")]
)
def test_writes_and_reads_place_every_byte(ends, ours, theirs):
    a, b, peer = ends
    for nbytes in SIZES:
        source, target = random_bytes(nbytes, ours), poisoned(nbytes, theirs)
        theirs_now = b.register(target[GUARD : GUARD + nbytes])
        transfer = peer.write(a.register(source), theirs_now.remote)
        transfer.wait()
        assert transfer.route.kind == "staged"
        check(target, source)
        back = poisoned(nbytes, ours)
        peer.read(theirs_now.remote, a.register(back[GUARD : GUARD + nbytes])).wait()
        check(back, source)


def test_the_route_is_staged_and_says_why(ends):
    a, b, peer = ends
    source, target = a.register(random_bytes(8, "cuda:0")), b.register(random_bytes(8, "cuda:0"))
    route = peer.route(source, target.remote)
    assert route.kind == "staged"
    assert ("it was asked for" if a.how else "no RDMA adapter") in route.reason
    assert route.settings["staging_chunk"] == 1 << 19
    with pytest.raises(zh.RouteUnavailable, match="only 'staged' is"):
        peer.write(source, target.remote, require="gpudirect")


def test_a_notification_finds_what_a_kernel_had_still_to_write(ends):
    a, b, peer = ends
    source = torch.zeros(1 << 20, dtype=torch.int32, device="cuda:0")
    target = torch.zeros(1 << 20, dtype=torch.int32, device="cuda:0")
    torch.cuda.synchronize()
    local, theirs = a.register(source), b.register(target)
    for value in range(1, 30):
        torch.cuda._sleep(1_000_000)  # cycles: the write below is called before the fill has run
        source.fill_(value)
        transfer = peer.write(local, theirs.remote, notify=(7, value))
        b.endpoint.wait_notify(7)
        assert bool((target == value).all())
        transfer.wait()


def test_many_pieces_and_columns(ends):
    a, b, peer = ends
    source = random_bytes(512 * 1000, "cuda:0").view(512, 1000)
    target = torch.zeros_like(source)
    local, theirs = a.register(source), b.register(target)
    peer.write_many([(local[i], theirs[511 - i].remote) for i in range(512)], notify=(3, 9))
    b.endpoint.wait_notify(3)
    assert torch.equal(target.flip(0), source)
    peer.write(local[:, 100:107], theirs[:, 7:14].remote).wait()
    assert torch.equal(target[:, 7:14], source[:, 100:107])


def test_atomics(ends):
    _, b, peer = ends
    words = torch.zeros(4, dtype=torch.int64, device="cuda:0")
    memory = b.register(words)
    remote = memory.remote
    if b.how == "staged":
        with pytest.raises(zh.RouteUnavailable, match="keep counters in host memory"):
            peer.fetch_add(remote[2], 5)
        return
    assert [peer.fetch_add(remote[2], 5).wait() for _ in range(4)] == [0, 5, 10, 15]
    assert peer.compare_swap(remote[2], 20, -1).wait() == 20
    assert words.tolist() == [0, 0, -1, 0]


def test_memory_of_every_kind(ends):
    a, b, peer = ends
    source = random_bytes(2 * GRANULE, "cuda:0")
    local = a.register(source)
    with reserve(2) as chunks, pooled(2 * GRANULE) as pool, managed(2 * GRANULE) as shared:
        chunks.map(0, gpudirect=False)
        chunks.map(1, gpudirect=False)
        for address in (chunks.address, pool, shared):
            target = tensor(address, 2 * GRANULE)
            memory = b.register(target)
            peer.write(local, memory.remote).wait()
            assert torch.equal(source, target)
            memory.close()


def test_closed_memory_is_out_of_reach(ends):
    a, b, peer = ends
    target = poisoned(1 << 20, "cuda:0")
    memory = b.register(target)
    remote = memory.remote
    memory.close()
    with pytest.raises(zh.VerbsError):
        peer.write(a.register(random_bytes(target.numel(), "cuda:0")), remote).wait()
    assert bool((target == POISON).all())


@pytest.mark.parametrize(
    ("ours", "theirs"), [("cuda:0", "cuda:0"), ("cuda:0", "cpu"), ("cpu", "cuda:0")]
)
def test_messages(ends, ours, theirs):
    a, b, peer = ends
    back = b.endpoint.accept()
    for nbytes in SIZES:
        source, target = random_bytes(nbytes, ours), poisoned(nbytes, theirs)
        local, into = a.register(source), b.register(target[GUARD : GUARD + nbytes])
        sent = peer.send(local, tag=7)
        assert back.recv(into, tag=7).wait() == nbytes
        sent.wait()
        check(target, source)


def test_both_sides_at_once(ends):
    a, b, peer = ends
    back = b.endpoint.accept()
    nbytes = 32 << 20
    sources = [random_bytes(nbytes, "cuda:0") for _ in range(2)]
    targets = [torch.zeros_like(source) for source in sources]
    ours, theirs = a.register(sources[0]), b.register(targets[0])
    back_ours, back_theirs = b.register(sources[1]), a.register(targets[1])
    transfers = [
        t
        for _ in range(4)
        for t in (
            peer.write(ours, theirs.remote),
            back.write(back_ours, back_theirs.remote),
        )
    ]
    for transfer in transfers:
        transfer.wait()
    assert torch.equal(sources[0], targets[0])
    assert torch.equal(sources[1], targets[1])


@pytest.mark.parametrize("how", [None, "staged"])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_chunks_of_every_size(chunk, how):
    options: dict[str, Any] = {"staging_chunk": chunk, "p2p": 0}
    with zh.Endpoint("soft0", **options) as a, zh.Endpoint("soft0", **options) as b:
        source = random_bytes(64 << 20, "cuda:0")
        target = torch.zeros_like(source)
        local, theirs = a.register(source, registration=how), b.register(target, registration=how)
        a.connect(b.address).write(local, theirs.remote).wait()
        assert torch.equal(source, target)

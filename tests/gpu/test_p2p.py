"""GPU memory of two processes of one host, written and read by the GPU itself.

The other process is on the same GPU, and on another one where the machine has two.
"""

import random
import re
from typing import Any

import pytest
import torch
import zerohop as zh
from device_memory import GRANULE
from far_side import POISON, THEIRS, far_side

KINDS = ["cudaMalloc", "own"]
NBYTES = 1 << 22
GUARD = 4096
# What Route.reason says of a link (zerohop.topology.between); not every driver tells its speed.
LINK = (
    r" over \d+ NVLinks?( \(about \d+ GB/s each way\))?| over PCIe \(.+\)| \(NVLinks are unknown: .+\)"
    r"| \(over an unknown link: .+\)"
)


@pytest.fixture(params=[(there, kind) for there in THEIRS for kind in KINDS], ids=str)
def ends(request):
    there, kind = request.param
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side() as far:
        far.hold(kind, NBYTES, there)
        yield ep, ep.connect(far.address), far


def random_bytes(nbytes: int) -> Any:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device="cuda:0")


def test_the_route_is_p2p_and_every_byte_is_placed(ends):
    ep, peer, far = ends
    there = peer["array"]
    wanted = torch.full((NBYTES,), POISON, dtype=torch.uint8)
    chosen = random.Random(4)
    for _ in range(60):
        nbytes = min(chosen.choice([1, 3, 255, 4096, 65_537, 1 << 20]), NBYTES - 1)
        nbytes = max(1, nbytes - chosen.randrange(3))
        at, offset = chosen.randrange(NBYTES - nbytes), chosen.randrange(16)
        source = random_bytes(nbytes + 16)[offset : offset + nbytes]
        transfer = peer.write(ep.register(source), there[at : at + nbytes], require="p2p")
        transfer.wait()
        assert transfer.route.kind == "p2p"
        wanted[at : at + nbytes] = source.cpu()
    assert torch.equal(torch.from_numpy(far.run("answer = array.cpu().numpy()")), wanted)
    back = torch.full((NBYTES + 2 * GUARD,), 7, dtype=torch.uint8, device="cuda:0")
    peer.read(there, ep.register(back[GUARD:-GUARD]), require="p2p").wait()
    assert torch.equal(back[GUARD:-GUARD].cpu(), wanted)
    assert bool((back[:GUARD] == 7).all())
    assert bool((back[-GUARD:] == 7).all())


def test_the_route_says_over_what_link_and_is_counted(ends):
    ep, peer, far = ends
    local, there = ep.register(random_bytes(4096)), peer["array"][:4096]
    reason = peer.route(local, there).reason
    theirs = far.run("answer = str(array.device)")
    link = r", which is the same GPU" if theirs == "cuda:0" else LINK
    copies = f"both processes are on this host, and cuda:0 copies from and to the peer's {theirs}"
    assert re.fullmatch(f"{copies}({link})", reason), reason
    transfer = peer.write(local, there, require="p2p")
    transfer.wait()
    assert transfer.route.reason == reason
    [row] = [row for row in peer.stats()["routes"] if row["device"] == "cuda:0"]
    assert (row["route"], row["writes"], row["bytes_out"]) == ("p2p", 1, 4096)
    assert (row["failures"], row["under_way"]) == (0, 0)
    assert row["chunks_mapped"] >= 1
    assert row["nbytes_mapped"] >= NBYTES


def test_a_notification_finds_what_a_kernel_had_still_to_write(ends):
    ep, peer, far = ends
    there, source = peer["array"], torch.zeros(NBYTES, dtype=torch.uint8, device="cuda:0")
    local = ep.register(source)
    far.begin_rounds(30)
    for value in range(1, 31):
        torch.cuda._sleep(1_000_000)  # cycles: the write below is called before the fill has run
        source.fill_(value)
        peer.write(local, there, notify=(7, value), require="p2p")
        assert ep.wait_notify(8) == value
    assert far.finish() == [True] * 30


def test_freed_memory_is_let_go_of_and_its_place_is_found_anew(ends):
    ep, peer, far = ends
    for value in range(3):
        source = ep.register(torch.full((NBYTES,), value, dtype=torch.uint8, device="cuda:0"))
        peer.write(source, peer["array"], require="p2p").wait()
        assert far.run(f"answer = bool((array == {value}).all())")
        device, old = far.run("answer = str(array.device)"), peer["array"]
        far.run("memory.close(); del array, memory; torch.cuda.empty_cache()")
        far.hold("cudaMalloc", NBYTES, device)
        with pytest.raises(zh.VerbsError):
            peer.write(source, old).wait()
        assert far.run(f"answer = bool((array == {POISON}).all())")


@pytest.mark.parametrize(
    "ends", [(there, kind) for there in THEIRS[-1:] for kind in KINDS], indirect=True, ids=str
)
def test_a_million_small_writes(ends):
    """Back to back, and each to a place of its own."""
    ep, peer, far = ends
    count, stride = (
        NBYTES // 4,
        7919,
    )  # has no factor in common with count, so that all places are met
    there, numbers = peer["array"], torch.arange(count, dtype=torch.int32)
    local = ep.register(numbers.to("cuda:0").view(torch.uint8))
    for i in range(count):
        to = 4 * (i * stride % count)
        last = peer.write(local[4 * i : 4 * i + 4], there[to : to + 4])
    last.wait()
    assert last.route.kind == "p2p"
    wanted = torch.empty_like(numbers)
    wanted[numbers.long() * stride % count] = numbers
    found = torch.from_numpy(far.run("answer = array.cpu().numpy()"))
    assert torch.equal(found.view(torch.int32), wanted)


def test_memory_without_a_handle_takes_the_next_route_and_says_why():
    with zh.Endpoint("soft0", p2p=True) as ep, far_side() as far:
        far.hold("pool", 65536, "cuda:0")
        peer = ep.connect(far.address)
        local, there = ep.register(random_bytes(65536)), peer["array"]
        route = peer.route(local, there)
        assert route.kind == "staged"
        assert "which has no handle to share" in route.reason
        with pytest.raises(zh.RouteUnavailable, match="no handle to share"):
            peer.write(local, there, require="p2p")
        peer.write(local, there).wait()


@pytest.mark.parametrize("p2p", [True, False])
def test_memory_of_several_chunks(monkeypatch, p2p):
    """PyTorch's expandable segments: each chunk goes to the other process by itself."""
    nbytes, route = 100 << 20, "p2p" if p2p else "staged"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    with zh.Endpoint("soft0", p2p=p2p, timeout=30.0) as ep, far_side(p2p, fresh=True) as far:
        far.hold("cudaMalloc", nbytes, THEIRS[-1])
        peer = ep.connect(far.address)
        there, wanted = peer["array"], random_bytes(nbytes)
        peer.write(ep.register(wanted), there, require=route).wait()
        assert far.run("answer = int(array.long().sum())") == int(wanted.long().sum())
        chosen = random.Random(3)
        write_across_edges(ep, peer, there, wanted, route)
        write_pages_across_edges(ep, peer, there, wanted, route)
        back = torch.zeros_like(wanted)
        mine = ep.register(back)
        edges = sorted(chosen.sample(range(1, nbytes), 200))
        parts = list(zip([0, *edges], [*edges, nbytes], strict=True))
        chosen.shuffle(parts)
        for first, last in parts[:100]:
            peer.read(there[first:last], mine[first:last], require=route).wait()
        rest = [(there[first:last], mine[first:last]) for first, last in parts[100:]]
        peer.read_many(rest, require=route).wait()
        assert torch.equal(back, wanted)
        assert torch.equal(torch.from_numpy(far.run("answer = array.cpu().numpy()")), wanted.cpu())


def write_across_edges(
    ep: zh.Endpoint, peer: zh.Peer, there: zh.RemoteMemory, wanted: Any, route: str
) -> None:
    """Random runs and steps over the places where one chunk may end and the next begin; `wanted` follows."""
    chosen, news = random.Random(5), random_bytes(1 << 16)
    mine = ep.register(news)
    for _ in range(100):
        edge = chosen.randrange(1, there.nbytes // GRANULE) * GRANULE - there.address % GRANULE
        count, step = chosen.randrange(2, 3000), chosen.choice([1, 2, 7])
        first, at = edge - chosen.randrange(1, count * step), chosen.randrange(1 << 15)
        part = slice(first, first + count * step, step)
        peer.write(mine[at : at + count], there[part], require=route).wait()
        wanted[part] = news[at : at + count]


def write_pages_across_edges(
    ep: zh.Endpoint, peer: zh.Peer, there: zh.RemoteMemory, wanted: Any, route: str
) -> None:
    """Pages that lie across the places where one chunk ends and the next begins; `wanted` follows."""
    page = 3 << 18
    count = there.nbytes // page
    news, order = random_bytes(count * page).view(count, page), torch.randperm(count)
    pages = there[: count * page].reshape(count, page)
    peer.write_pages(ep.register(news), pages, None, order, require=route).wait()
    wanted[: count * page].view(count, page)[order.to(wanted.device)] = news


def test_endpoints_of_one_process():
    with zh.Endpoint("soft0", p2p=True) as a, zh.Endpoint("soft0", p2p=True) as b:
        peer = a.connect(b.address)
        for device in THEIRS:
            for own in (False, True):
                source = random_bytes(NBYTES)
                target = b.empty(NBYTES, "uint8", device=device) if own else None
                tensor = torch.from_dlpack(target) if own else source.to(device).fill_(POISON)
                memory = target if own else b.register(tensor)
                peer.write(a.register(source), memory.remote, require="p2p").wait()
                assert torch.equal(tensor.cpu(), source.cpu())

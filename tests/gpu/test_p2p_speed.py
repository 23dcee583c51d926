"""Not a verdict: rows of what writes between two processes' GPUs take, beside copies of one process."""

import time
from functools import partial
from typing import Any

import torch
import zerohop as zh
from far_side import far_side

MIB = 1 << 20


def best(call: Any, repeat: int = 5) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def write_times(peer: Any, ours: Any, target: Any, count: int) -> dict[str, float]:
    def in_a_row() -> None:
        for _ in range(count):
            last = peer.write(ours, target)
        last.wait()

    def one_by_one() -> None:
        for _ in range(count):
            peer.write(ours, target).wait()

    in_a_row()
    return {"seconds": best(in_a_row) / count, "waited": best(one_by_one) / count}


def copy_time(source: Any, target: Any, count: int) -> float:
    def copied() -> None:
        for _ in range(count):
            target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    copied()
    return best(copied) / count


def part(array: Any, i: int, nbytes: int) -> Any:
    return array[i * nbytes : (i + 1) * nbytes]


def write_all(peer: Any, pairs: Any) -> None:
    peer.write_many(pairs).wait()


def write_list(peer: Any, *arguments: Any) -> None:
    peer.write_pages(*arguments).wait()


def test_rows(rows: Any) -> None:
    theirs = f"cuda:{min(1, torch.cuda.device_count() - 1)}"
    nbytes = 1 << 30
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side() as far:
        far.run(f"""
array = allocate("own", {nbytes}, {theirs!r}, ep)
memory = ep.register(array)
ep.share("array", memory)
""")
        peer = ep.connect(far.address)
        there = peer["array"]
        mine = ep.empty(nbytes, "uint8", device="cuda:0")
        other = torch.empty(nbytes, dtype=torch.uint8, device=theirs)
        own = torch.from_dlpack(mine)
        began = time.perf_counter()
        peer.write(mine[:8], there[:8], require="p2p").wait()
        rows.add(
            "p2p",
            what="first write: mapping of 1 GiB",
            theirs=theirs,
            seconds=time.perf_counter() - began,
        )
        for size in (8, 4096, 1 << 16, MIB, 16 * MIB, 256 * MIB, nbytes):
            count = 100 if size <= MIB else 10
            row = write_times(peer, mine[:size], there[:size], count)
            row["torch_copy"] = copy_time(own[:size], other[:size], count)
            rows.add("p2p", what="write", theirs=theirs, nbytes=size, **row)
        for block, count in ((4096, 16384), (16384, 4096), (65536, 1024)):
            order = torch.randperm(count).tolist()
            pairs = [(part(mine, i, block), part(there, j, block)) for i, j in enumerate(order)]
            call = partial(write_all, peer, pairs)
            call()
            seconds = best(call)
            rows.add(
                "p2p", what="write_many", theirs=theirs, block=block, count=count, seconds=seconds
            )
            pages = (mine[: block * count], there[: block * count])
            lists = (None, torch.tensor(order))
            call = partial(write_list, peer, *(p.reshape(count, block) for p in pages), *lists)
            call()
            seconds = best(call)
            rows.add(
                "p2p", what="write_pages", theirs=theirs, block=block, count=count, seconds=seconds
            )
        tiny, target = mine[:8], there[:8]
        posts = []
        for _ in range(200):
            began = time.perf_counter()
            transfer = peer.write(tiny, target)
            posts.append(time.perf_counter() - began)
            transfer.wait()
        rows.add("p2p", what="posting call", theirs=theirs, seconds=sorted(posts)[100])

"""Not a verdict: rows of what copies between the host's memory and another process's GPU take, beside bare ones."""

import time
from functools import partial
from typing import Any

import pytest
import torch
import zerohop as zh
from far_side import far_side
from test_p2p_speed import MIB, best, copy_time, write_list, write_times

NBYTES = 1 << 30
SIZES = (8, 4096, 1 << 16, MIB, 16 * MIB, 256 * MIB, NBYTES)
BLOCKS = ((4096, 16384), (16384, 4096), (65536, 1024))


def add_rows(rows: Any, what: str, peer: zh.Peer, ours: Any, there: Any, bare: Any) -> None:
    """bare: the source and the target of copies of the driver within this process."""
    began = time.perf_counter()
    peer.write(ours[:8], there[:8], require="p2p").wait()
    first = time.perf_counter() - began
    began = time.perf_counter()
    peer.write(ours, there, require="p2p").wait()
    rows.add(
        "host_gpu", what=f"{what}: first writes", seconds=first, whole=time.perf_counter() - began
    )
    for size in SIZES:
        count = 100 if size <= MIB else 10
        row = write_times(peer, ours[:size], there[:size], count)
        row["bare_copy"] = copy_time(bare[0][:size], bare[1][:size], count)
        rows.add("host_gpu", what=what, nbytes=size, **row)
    for block, count in BLOCKS:
        lists = (None, torch.randperm(count))
        pages = (array[: block * count].reshape(count, block) for array in (ours, there))
        call = partial(write_list, peer, *pages, *lists)
        call()
        rows.add("host_gpu", what=f"{what}: pages", block=block, count=count, seconds=best(call))


@pytest.mark.parametrize("kind", ["numpy", "pinned"])
def test_rows_to_a_gpu(rows: Any, kind: str) -> None:
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side() as far:
        far.run(f"""
memory = ep.empty({NBYTES}, "uint8", device="cuda:0")
ep.share("array", memory)
""")
        peer = ep.connect(far.address)
        pinned = torch.ones(NBYTES, dtype=torch.uint8, pin_memory=True)
        plain = torch.ones(NBYTES, dtype=torch.uint8)
        ours = ep.register(pinned if kind == "pinned" else plain)
        target = torch.empty(NBYTES, dtype=torch.uint8, device="cuda:0")
        add_rows(rows, f"{kind} to GPU", peer, ours, peer["array"], (pinned, target))


def test_rows_to_the_host(rows: Any) -> None:
    with zh.Endpoint("soft0", p2p=True, timeout=30.0) as ep, far_side() as far:
        far.run(f"""
memory = ep.empty({NBYTES}, "uint8")
ep.share("array", memory)
""")
        peer = ep.connect(far.address)
        source = torch.ones(NBYTES, dtype=torch.uint8, device="cuda:0")
        pinned = torch.empty(NBYTES, dtype=torch.uint8, pin_memory=True)
        add_rows(rows, "GPU to host", peer, ep.register(source), peer["array"], (source, pinned))

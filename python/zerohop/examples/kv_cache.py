"""A paged KV cache between two processes, as in language model servers that prefill in one process and decode in another.

Rank 0, the decode side, sends a request, a message that names rows of its cache. Rank 1, the prefill side, writes the
request's blocks there, in all layers, with one call and one notification. Both are coroutines; on GPUs PyTorch holds the caches.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module, util
from typing import Any

import numpy as np
import numpy.typing as npt

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
LANES = 8  # requests in flight: each lane is a tag for messages and a slot for notifications
LONGEST = 32  # blocks of a request
Tables = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


def tables(layers: int, blocks: int) -> Tables:
    """The rows of both caches for each request, the same on both ranks. A row is a block of one layer."""
    random = np.random.default_rng(0)
    ends = np.cumsum(random.integers(1, LONGEST, blocks, endpoint=True))
    cuts, begins = ends[ends < blocks], np.arange(layers)[:, None] * blocks
    sides = [np.split(random.permutation(blocks), cuts) for _ in range(2)]
    return [((begins + a).ravel(), (begins + b).ravel()) for a, b in zip(*sides, strict=True)]


async def decode(endpoint: zh.Endpoint, peer: zh.Peer, requests: Tables) -> list[float]:
    seconds, line = [], iter(enumerate(requests))  # per request; one queue for all lanes

    async def lane(tag: int) -> None:
        for number, (_, wanted) in line:
            begin = time.perf_counter()
            await peer.send(np.array([number, *wanted]), tag=tag)
            await zh.aio.wait_notify(endpoint, tag)  # all blocks arrive before it
            seconds.append(time.perf_counter() - begin)
        await peer.send(np.array([-1]), tag=tag)

    await asyncio.gather(*map(lane, range(LANES)))
    return seconds


async def prefill(
    cache: zh.Memory, peer: zh.Peer, there: zh.RemoteMemory, requests: Tables
) -> None:
    async def lane(tag: int) -> None:
        order = np.empty(1 + cache.shape[0], np.int64)
        while (nbytes := await peer.recv(order, tag=tag)) and order[0] >= 0:
            computed, wanted = requests[order[0]][0], order[1 : nbytes // order.itemsize]
            await peer.write_pages(cache, there, computed, wanted, notify=(tag, 1))

    await asyncio.gather(*map(lane, range(LANES)))


def run(world: zh.World, layers: int, blocks: int, block_bytes: int) -> None:
    torch: Any = import_module("torch") if world.gpu != "cpu" and util.find_spec("torch") else None
    device, requests = world.gpu if torch else "cpu", tables(layers, blocks)
    words = np.arange(layers * blocks * block_bytes // 4, dtype="i4").reshape(layers * blocks, -1)
    cache = world.endpoint.empty(words.shape, "int32", device=device)
    view: Any = torch.from_dlpack(cache) if torch else np.asarray(cache)
    filled = words if world.rank == 1 else np.full_like(words, -1)
    view[...] = torch.from_numpy(filled) if torch else filled
    if torch:
        torch.cuda.synchronize(device)  # transfers do not wait for PyTorch's streams
    world.endpoint.share("cache", cache)
    peer = world.peer(1 - world.rank)
    there = peer.lookup("cache")
    world.barrier()
    if world.rank == 1:
        asyncio.run(prefill(cache, peer, there, requests))
    else:
        latencies = asyncio.run(decode(world.endpoint, peer, requests))
        right = np.empty_like(words)
        for computed, wanted in requests:
            right[wanted] = words[computed]
        if wrong := np.count_nonzero((view.cpu().numpy() if torch else view) != right):
            sys.exit(f"WRONG: {wrong} words of {right.size}")
        print(
            f"{layers} layers of {blocks} blocks of {block_bytes} bytes, {len(requests)} requests"
        )
        print(f"{np.median(latencies) * 1e3:.2f} ms each, {peer.route(cache, there)}")
        print("Every block equals the one that prefill computed, bit for bit.")
    world.barrier()


def start(ranks: int) -> int:
    """Without a launcher, starts this program once for each rank."""
    with tempfile.TemporaryDirectory() as store:  # where the ranks meet
        job = {**os.environ, "WORLD_SIZE": str(ranks), "STORE": store}
        numbers = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        command = [sys.executable, *sys.orig_argv[1:]]
        started = [subprocess.Popen(command, env=job | number) for number in numbers]
        return max(abs(process.wait()) for process in started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"layers": 16, "blocks": 512, "block-bytes": 16384}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(2))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        if world.size != 2:
            sys.exit(f"kv_cache has two ranks, but this job has {world.size}")
        run(world, options.layers, options.blocks, options.block_bytes)


if __name__ == "__main__":
    main()

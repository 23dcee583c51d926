"""The 2-D heat equation on an array that is split by columns among the ranks; the halos are columns, written in place.

In a row-major array a column is strided: one write reads it from there, and stores it in a column of the neighbour's
array. On GPUs, with CuPy, everything is ordered in a stream and no CPU waits between the steps; else the arrays are NumPy's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
FROM_LEFT, FROM_RIGHT = 0, 2  # the first of two slots each, for even and odd steps
AHEAD = 32  # steps that the CPU enqueues on the GPU before it waits


def step(old: Any, new: Any) -> None:
    """One step of all cells except the rim. Each product is exact, so all devices compute the same bits."""
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = old[1:-1, 1:-1] * 0.5 + around * 0.125


def solve(world: zh.World, rows: int, columns: int, steps: int) -> None:
    device = world.gpu if find_spec("cupy") else "cpu"
    first, end = (columns * edge // world.size for edge in (world.rank, world.rank + 1))
    whole = np.pad(np.random.default_rng(0).random((rows, columns), np.float32), 1)  # a cold rim
    xp: Any = np
    stream: Any = None
    if device != "cpu":
        xp = import_module("cupy")
        xp.cuda.Device(int(device.removeprefix("cuda:"))).use()
        stream = xp.cuda.Stream(non_blocking=True)
        stream.use()  # for all later CuPy calls

    # Two arrays, and two slots per side: a neighbour that has sent step s + 1 no longer needs the halo of step s.
    memory = world.endpoint.empty((2, rows + 2, end - first + 2), "float32", device=device)
    world.endpoint.share("arrays", memory)
    arrays = np.asarray(memory) if device == "cpu" else xp.from_dlpack(memory)
    arrays[0], arrays[1] = xp.asarray(whole[:, first : end + 2]), 0
    step(arrays[0], arrays[1])  # loads GPU kernels while nothing waits; repeated below
    arrays[1] = 0
    if stream:
        stream.synchronize()
    sides = []  # the peer, its arrays, our column that goes there, its column, its slot, our slot
    if world.rank > 0:
        peer = world.peer(world.rank - 1)
        sides.append((peer, peer.lookup("arrays"), 1, -1, FROM_RIGHT, FROM_LEFT))
    if world.rank < world.size - 1:
        peer = world.peer(world.rank + 1)
        sides.append((peer, peer.lookup("arrays"), -2, 0, FROM_LEFT, FROM_RIGHT))
    routes = [f"halos go {side[0].route(memory[0, :, 1], side[1][0, :, 0])}" for side in sides]
    world.barrier()  # all have filled their arrays before the first halo arrives
    posted: list[Any] = []
    begin = time.perf_counter()
    for number in range(1, steps + 1):
        parity = number % 2
        step(arrays[1 - parity], arrays[parity])
        for peer, there, edge, halo, slot, _ in sides:
            source, target = memory[parity, :, edge], there[parity, :, halo]
            posted.append(peer.write(source, target, notify=(slot + parity, number), stream=stream))
        for *_, slot in sides:
            halo_here = world.endpoint.wait_notify(slot + parity, stream=stream)
            if stream:  # the stream waits, the CPU continues
                posted.append(halo_here)
        if stream is None or number % AHEAD == 0 or number == steps:
            for transfer in posted:
                transfer.wait()
            posted.clear()
    if stream:
        stream.synchronize()
    seconds = time.perf_counter() - begin
    right = [whole, whole.copy()]  # the same in one process
    for number in range(1, steps + 1):
        step(right[1 - number % 2], right[number % 2])
    found = arrays[steps % 2] if device == "cpu" else xp.asnumpy(arrays[steps % 2])
    cells = right[steps % 2][1:-1, 1 + first : 1 + end]
    if wrong := np.count_nonzero(found[1:-1, 1:-1].view(np.uint32) != cells.view(np.uint32)):
        sys.exit(f"WRONG: {wrong} of {cells.size} cells on rank {world.rank}")
    world.barrier()  # nobody leaves while another rank still needs it
    if world.rank == 0:
        print(f"{rows} x {columns} float32 of {xp.__name__}, columns on {world.size} ranks")
        print(f"{steps} steps, {seconds / steps * 1e6:.0f} us each", *routes, sep="\n")
        print("Every cell equals that of a single process, bit for bit.")


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
    for name, default in {"rows": 1024, "columns": 1024, "steps": 200, "ranks": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(options.ranks))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        solve(world, options.rows, options.columns, options.steps)


if __name__ == "__main__":
    main()

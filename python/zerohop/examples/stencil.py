"""The 2-D heat equation on a grid that is split by rows among the ranks; halos use a segment, with offsets and slots.

On GPUs, with CuPy, one kernel (stencil.cu) does all steps, and puts and awaits halos; else the CPU does.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def step(old: Any, new: Any) -> None:
    """One step of all cells except the rim. Each product is exact, so all devices compute the same bits."""
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = old[1:-1, 1:-1] * 0.5 + around * 0.125


def by_host(segment: zh.Segment, grids: Any, sides: Any, steps: int) -> None:
    for number in range(1, steps + 1):
        parity, nbytes = number % 2, grids.strides[1]
        step(grids[1 - parity], grids[parity])
        for rank, row, halo, slot in sides:
            here, there = ((parity * len(grids[0]) + each) * nbytes for each in (row, halo))
            segment.write_notify(rank, here, there, nbytes, slot=2 - slot + parity)
        for *_, slot in sides:
            segment.notify_waitsome(slot + parity, 1)
            segment.notify_reset(slot + parity)
        segment.wait()  # the sent rows may change after this


def open_kernel(enter: Any, segment: zh.Segment, grids: Any, sides: Any) -> Any:
    cupy, queues, (_, rows, columns) = import_module("cupy"), np.zeros(2, np.uint64), grids.shape
    code, options = Path(__file__).with_suffix(".cu").read_text(), zh.compile_options()
    kernel = cupy.RawKernel(code, "run", options=options)
    blocks = grids.device.attributes["MultiProcessorCount"]  # all of them run at once
    board = enter(segment.device_board(device=f"cuda:{grids.device.id}"))
    for rank, *_, slot in sides:
        queues[slot // 2] = enter(segment.device_queue(rank, hears="gpu", way="mapped")).address
    there, ending = cupy.asarray(queues), cupy.zeros(3, "uint32")

    def run(steps: int) -> None:
        words = np.array([columns, rows - 2, steps, segment.slots.start], np.uint32)
        kernel((blocks,), (512,), (*grids, *words, there, board.value, ending))
        grids.device.synchronize()
        if status := int(ending[0]):  # a zerohop::device::Status
            sys.exit(f"the kernel ended at step {ending[1]} with status {status}")

    return run


def solve(world: zh.World, side: int, steps: int) -> None:
    cupy: Any = import_module("cupy") if world.gpu != "cpu" and util.find_spec("cupy") else None
    device, rows = world.gpu if cupy else "cpu", max(2, side // world.size)
    # So that all have equally many rows, and their grids at the same offsets.
    side = rows * world.size
    whole = np.pad(np.random.default_rng(0).random((side, side), np.float32), 1)  # a cold rim
    own = np.s_[world.rank * rows : world.rank * rows + rows + 2]  # with a row above and one below
    segment = world.segment(2 * whole[own].nbytes, device=device, dtype="float32", notifications=4)
    grids: Any = (cupy.from_dlpack if cupy else np.asarray)(segment.local).reshape(2, rows + 2, -1)
    if cupy:
        grids.device.use()
    grids[0] = cupy.asarray(whole[own]) if cupy else whole[own]
    # A neighbour, our row that goes there, its halo, our first slot of two, for even and odd steps.
    sides = (world.rank - 1, 1, rows + 1, 0), (world.rank + 1, rows, 0, 2)
    parts = segment, grids, [each for each in sides if 0 <= each[0] < world.size]
    with ExitStack() as stack:
        run = open_kernel(stack.enter_context, *parts) if cupy else partial(by_host, *parts)
        run(0)  # loads the kernel
        world.barrier()
        begin = time.perf_counter()
        run(steps)
        us = (time.perf_counter() - begin) / steps * 1e6
    right = [whole, whole.copy()]  # the same in one process
    for number in range(1, steps + 1):
        step(right[1 - number % 2], right[number % 2])
    found = grids[steps % 2].get() if cupy else grids[steps % 2]
    if wrong := np.count_nonzero(found != right[steps % 2][own]):
        sys.exit(f"WRONG: {wrong} of {found.size} cells on rank {world.rank}")
    world.barrier()
    if world.rank == 0:
        print(f"{side} x {side} on {world.size} ranks, {us:.0f} us a step, on {device}")
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
    for name, default in {"side": 1022, "steps": 200, "ranks": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(options.ranks))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        solve(world, options.side, options.steps)


if __name__ == "__main__":
    main()

"""Products of 32x32 matrices and vectors as a service of rank 1 for rank 0 (GPUrdma; Daoud, Watad, Silberstein; ROSS 2016).
On GPUs, with CuPy, one kernel on each rank (matvec.cu) sends, waits, multiplies and answers; else CPUs do.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
SETS = 3  # of vectors on rank 0, then all products; rank 1 has two batches, and the products of two
BLOCKS = 128  # most blocks of a kernel; each has two slots


def ask(segment: zh.Segment, part: Any, matrices: Any, rounds: int) -> None:
    nbytes = 128 * len(matrices)
    for number in range(rounds + 2):
        turn = number % 2
        if number >= 2:
            segment.notify_waitsome(turn, 1)  # the products of the batch before the last
            segment.notify_reset(turn)
        if number < rounds:
            segment.write_notify(1, number % SETS * nbytes, turn * nbytes, nbytes, slot=turn)
    segment.wait()


def answer(segment: zh.Segment, part: Any, matrices: Any, rounds: int) -> None:
    nbytes = 128 * len(matrices)
    for number in range(rounds):
        turn = number % 2
        segment.notify_waitsome(turn, 1)
        segment.notify_reset(turn)
        segment.wait()  # the products before these have been read
        np.matmul(matrices, part[turn][:, :, None], out=part[2 + turn][:, :, None])
        segment.write_notify(0, (2 + turn) * nbytes, (SETS + number) * nbytes, nbytes, slot=turn)
    segment.wait()


def open_kernel(enter: Any, world: zh.World, segment: zh.Segment, part: Any, matrices: Any) -> Any:
    cupy, batch = import_module("cupy"), len(matrices)
    columns = cupy.asarray(np.ascontiguousarray(matrices.transpose(0, 2, 1)))
    code, options = Path(__file__).with_suffix(".cu").read_text(), zh.compile_options()
    kernel = cupy.RawKernel(code, ("request", "serve")[world.rank], options=options)
    queue = enter(segment.device_queue(1 - world.rank, hears="gpu", way="mapped"))
    board, ending = enter(segment.device_board(device=world.gpu)), cupy.zeros(2, "uint32")
    blocks = max(1, min(BLOCKS, batch // 16))  # with 64 or more multiprocessors all run at once

    def run(rounds: int) -> None:
        words = np.array([batch, segment.slots.start, rounds], np.uint32)
        kernel((blocks,), (512,), (columns, *words, queue.value, board.value, ending))
        columns.device.synchronize()
        if status := int(ending[0]):  # a zerohop::device::Status
            sys.exit(f"the kernel ended at batch {ending[1]} with status {status}")

    return run


def serve(world: zh.World, batch: int, rounds: int) -> None:
    cupy: Any = import_module("cupy") if world.gpu != "cpu" and util.find_spec("cupy") else None
    random, device, nbytes = np.random.default_rng(batch), world.gpu if cupy else "cpu", 128 * batch
    # Sixteenths from -8 to 8: their products, and the sums of these, are exact in float32.
    matrices = random.integers(-128, 129, (batch, 32, 32)).astype(np.float32) / 16
    vectors = random.integers(-128, 129, (SETS, batch, 32)).astype(np.float32) / 16
    right = np.matmul(matrices, vectors[..., None])[..., 0][np.arange(rounds) % SETS]
    size = nbytes * (SETS + rounds if world.rank == 0 else 4)
    segment = world.segment(size, device=device, dtype="float32", notifications=2 * BLOCKS)
    part: Any = (cupy.from_dlpack if cupy else np.asarray)(segment.local).reshape(-1, batch, 32)
    if cupy:
        part.device.use()
    if world.rank == 0:
        part[:SETS] = cupy.asarray(vectors) if cupy else vectors
    host, job = (ask, answer)[world.rank], (segment, part, matrices)  # there are two ranks
    with ExitStack() as stack:
        run = open_kernel(stack.enter_context, world, *job) if cupy else lambda n: host(*job, n)
        run(0)  # loads the kernel
        world.barrier()
        begin = time.perf_counter()
        run(rounds)
        rate = rounds / (time.perf_counter() - begin)
    if world.rank == 0:
        np.testing.assert_array_equal(part[SETS:].get() if cupy else part[SETS:], right)
        route = world.peer(1).route(segment.local, segment.remote(1))
        print(f"{rounds} batches of {batch} vectors on {device}, {rate:.0f} a second, {route}")
        print("Every product equals NumPy's, bit for bit.")
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
    for name, default in {"batch": 480, "rounds": 500}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(2))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        serve(world, options.batch, options.rounds)


if __name__ == "__main__":
    main()

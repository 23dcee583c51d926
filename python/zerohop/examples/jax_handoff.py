"""A JAX array of one process becomes one of another, whose JAX reads it in place.

JAX arrays are immutable. So the receiver allocates memory, has it written, and makes the array from that memory only after the
notification; nobody writes it while the array lives. The sender's array is sent directly.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
DTYPES = ("float32", "bfloat16", "float16", "int8")
SLOT = 0


def values(cells: Any, round_: int) -> Any:
    """Integers that all of DTYPES can represent."""
    return (cells % 251 * 37 + round_ * 11) % 251 - 125


def give(world: zh.World, jax: Any, rounds: int, shape: tuple[int, int]) -> None:
    peer = world.peer(1)
    for dtype in DTYPES:
        seconds = []
        for round_ in range(rounds):
            cells = jax.numpy.arange(shape[0] * shape[1]).reshape(shape)
            array = values(cells, round_).astype(dtype).block_until_ready()
            source = world.endpoint.register(array)  # peers may read it, nobody may write it
            there = peer.lookup(f"{dtype} array {round_}")
            begin = time.perf_counter()
            written = peer.write(source, there, notify=(SLOT, 1))
            written.wait()
            seconds.append(time.perf_counter() - begin)
        rate = source.nbytes / np.median(seconds) / 1e9
        print(f"{dtype}: {rounds} arrays of {source.nbytes} bytes, {rate:.3g} GB/s")
    world.barrier()
    print(f"They go {written.route}")
    print("Every element equals the reference, bit for bit, and JAX reads it in place.")


def take(world: zh.World, jax: Any, rounds: int, shape: tuple[int, int]) -> None:
    device = world.gpu if jax.default_backend() == "gpu" else "cpu"
    for dtype in DTYPES:
        for round_ in range(rounds):
            memory = world.endpoint.empty(shape, dtype, device=device)
            world.endpoint.share(f"{dtype} array {round_}", memory)
            world.endpoint.wait_notify(SLOT)
            array = jax.dlpack.from_dlpack(memory)  # `memory` must not be written any more
            if array.unsafe_buffer_pointer() != memory.address:
                sys.exit(f"WRONG: JAX has copied the array of {dtype}")
            cells = np.arange(shape[0] * shape[1]).reshape(shape)
            right: npt.NDArray[Any] = values(cells, round_).astype(jax.numpy.dtype(dtype))
            found = np.asarray(array)
            if found.dtype != right.dtype or found.tobytes() != right.tobytes():
                sys.exit(f"WRONG: array {round_} of {dtype} is not what was sent")
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
    for name, default in {"rows": 1024, "columns": 1024, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(2))
    # Two processes may share a GPU: do not preallocate its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = import_module("jax")
    with zh.World.from_env(os.environ.get("STORE")) as world:
        if world.size != 2:
            sys.exit(f"jax_handoff has two ranks, but this job has {world.size}")
        role = give if world.rank == 0 else take
        with jax.default_device(jax.local_devices()[world.local_rank % jax.local_device_count()]):
            role(world, jax, options.rounds, (options.rows, options.columns))


if __name__ == "__main__":
    main()

"""Latency or bandwidth between two ranks, as a table in the format of the OSU micro-benchmarks.

Ranks that share a core take turns on it: bind them to different cores (mpirun --bind-to core). On GPUs the arrays are PyTorch's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module, util
from typing import Any

import numpy as np

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
WINDOW = 64  # writes in flight in the bandwidth test
WARM = 10  # untimed turns
LARGE = 8192  # bytes; larger messages have fewer turns
SLOT = 0


def latency(world: zh.World, source: zh.Memory, there: zh.RemoteMemory, turns: int) -> float:
    """Seconds of half a round trip."""
    peer, begin = world.peer(1 - world.rank), time.perf_counter()
    for _ in range(turns):
        if world.rank == 1:
            world.endpoint.wait_notify(SLOT)
        written = peer.write(source, there, notify=(SLOT, 1))
        if world.rank == 0:
            world.endpoint.wait_notify(SLOT)
        written.wait()
    return (time.perf_counter() - begin) / turns / 2


def bandwidth(world: zh.World, source: zh.Memory, there: zh.RemoteMemory, turns: int) -> float:
    """Bytes per second from rank 0 to rank 1, which acknowledges each window of writes."""
    peer, begin = world.peer(1 - world.rank), time.perf_counter()
    for _ in range(turns):
        if world.rank == 1:
            world.endpoint.wait_notify(SLOT)
            peer.notify(SLOT, 1).wait()
            continue
        window = [peer.write(source, there) for _ in range(WINDOW - 1)]
        window.append(peer.write(source, there, notify=(SLOT, 1)))
        world.endpoint.wait_notify(SLOT)
        for written in window:
            written.wait()
    return turns * WINDOW * source.nbytes / (time.perf_counter() - begin)


def measure(world: zh.World, test: str, most: int, iterations: int | None) -> None:
    torch: Any = import_module("torch") if world.gpu != "cpu" and util.find_spec("torch") else None
    device = world.gpu if torch else "cpu"
    outbox, inbox = (world.endpoint.empty(most, device=device) for _ in range(2))
    view: Any = torch.from_dlpack if torch else np.asarray
    world.endpoint.share("inbox", inbox)
    there = world.peer(1 - world.rank).lookup("inbox")
    if world.rank == 0:
        print(f"# zerohop {test}, version {zh.__version__}")
        print(f"# Writes with notifications go {world.peer(1).route(outbox, there)}.")
        print("# Size          " + ("Latency (us)" if test == "latency" else "Bandwidth (MB/s)"))
    for power in range(most.bit_length()):
        nbytes = 1 << power
        random = np.random.default_rng(power)
        values = [
            torch.from_numpy(each) if torch else each
            for each in random.integers(0, 256, (2, nbytes), np.uint8)
        ]
        mine, right = values[world.rank], values[1 - world.rank]
        view(outbox)[:nbytes], view(inbox)[:nbytes] = mine, ~right
        if torch:
            torch.cuda.synchronize(device)  # transfers do not wait for PyTorch's streams
        world.barrier()
        turns = iterations or {"latency": (1000, 100), "bw": (100, 20)}[test][nbytes > LARGE]
        run = latency if test == "latency" else bandwidth
        run(world, outbox[:nbytes], there[:nbytes], WARM)
        figure = run(world, outbox[:nbytes], there[:nbytes], turns)
        found = view(inbox)[:nbytes].cpu() if torch else view(inbox)[:nbytes]
        if (found != right).any() and (test == "latency" or world.rank == 1):
            sys.exit(f"WRONG: of {nbytes} bytes rank {world.rank} did not receive what was sent")
        world.barrier()
        if world.rank == 0:
            print(f"{nbytes:<10}{figure * (1e6 if test == 'latency' else 1e-6):>18.2f}")
    if world.rank == 0:
        print("# All data arrived as sent, bit for bit.")


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
    parser.add_argument("--test", choices=("latency", "bw"), default="latency")
    parser.add_argument("-m", "--message-size", type=int, default=4 << 20, help="largest, bytes")
    parser.add_argument("-i", "--iterations", type=int, help="per size; default: by size")
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(2))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        if world.size != 2:
            sys.exit(f"osu has two ranks, but this job has {world.size}")
        measure(world, options.test, options.message_size, options.iterations)


if __name__ == "__main__":
    main()

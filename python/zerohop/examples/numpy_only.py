"""The smallest example, with only NumPy: each rank writes an array into the memory of the next one."""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import numpy.typing as npt

import zerohop as zh

SLOT = 7  # of the notification; a program has slots 0 to 16383
LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def squares(rank: int, count: int) -> npt.NDArray[np.int64]:
    """The array that a rank writes."""
    return (np.arange(count, dtype=np.int64) + 1000 * rank) ** 2


def exchange(world: zh.World, count: int) -> None:
    left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size

    inbox = world.endpoint.empty(count, "int64")  # memory that peers may write
    world.endpoint.share("inbox", inbox)
    peer = world.peer(right)
    written = peer.write(squares(world.rank, count), peer.lookup("inbox"), notify=(SLOT, 1))

    world.endpoint.wait_notify(SLOT)  # the data is there before the notification
    found = np.asarray(inbox)  # the memory itself, without a copy
    wrong = np.flatnonzero(found != squares(left, count))
    if len(wrong):
        sys.exit(f"WRONG: rank {world.rank} has {len(wrong)} wrong numbers of rank {left}")
    written.wait()
    print(f"rank {world.rank}: {count} numbers of rank {left} are right; mine went {written.route}")
    world.barrier()  # nobody leaves while another rank still needs it


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
    parser.add_argument("--count", type=int, default=1000, help="numbers per rank")
    parser.add_argument("--ranks", type=int, default=2, help="ranks to start without a launcher")
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(options.ranks))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        exchange(world, options.count)


if __name__ == "__main__":
    main()

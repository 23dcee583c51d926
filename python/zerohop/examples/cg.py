"""The conjugate gradient method: rows of a matrix are split among the ranks, which sum their dot products by all_reduce."""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def rows_of(points: int, first: int, end: int) -> np.ndarray:
    """Of the matrix of -u'' + u on a line of so many points."""
    rows = np.zeros((end - first, points))
    for row in range(first, end):
        rows[row - first, max(0, row - 1) : row + 2] = -1.0
        rows[row - first, row] = 3.0
    return rows


def solve(world: zh.World, points: int, tolerance: float) -> None:
    begins = [points * rank // world.size for rank in range(world.size + 1)]
    counts = np.diff(begins).tolist()
    matrix = rows_of(points, begins[world.rank], begins[world.rank + 1])
    x, residual = np.zeros(len(matrix)), np.ones(len(matrix))  # the right side is 1
    direction, whole = residual.copy(), np.empty(points)
    square = world.all_reduce(float(residual @ residual))
    for steps in range(1, points + 1):  # noqa: B007 its last value counts
        world.all_gather(whole, direction, counts=counts)
        image = matrix @ whole
        length = square / world.all_reduce(float(direction @ image))
        x += length * direction
        residual -= length * image
        before, square = square, world.all_reduce(float(residual @ residual))
        if square**0.5 < tolerance:
            break
        direction = residual + square / before * direction
    world.all_gather(whole, x, counts=counts)
    wrong = float(np.abs(matrix @ whole - 1).max())
    if (worst := world.all_reduce(wrong, "max")) > 100 * tolerance:
        sys.exit(f"WRONG: a residual of {worst:.1e} after {steps} steps on rank {world.rank}")
    world.barrier()  # nobody leaves while another rank still needs it
    if world.rank == 0:
        print(f"{points} points, rows on {world.size} ranks: {steps} steps")
        print(f"No residual is larger than {100 * tolerance:.0e}.")


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
    for name, default in {"points": 1000, "ranks": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(options.ranks))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        solve(world, options.points, 1e-10)


if __name__ == "__main__":
    main()

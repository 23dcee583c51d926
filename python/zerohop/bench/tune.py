"""`zerohop bench collectives --tune`: measures how reductions go best among the ranks of a job, and writes the table for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import click
import numpy as np

import zerohop as zh
from zerohop._world.deadline import Deadline
from zerohop.bench.loops import each_of
from zerohop.bench.plan import KIB, MIB
from zerohop.collectives.table import DEFAULT, EAGER, VARIABLE, Row, write_table
from zerohop.host import human_bytes

SIZES = (8, *(KIB << shift for shift in range(0, 18, 2)))  # up to 64 MiB
TURNS = 3
SECONDS = 0.05  # about, for each algorithm and size in each turn
FEWEST, MOST = 5, 200  # calls
LONG = MIB // 2  # bytes from which slices may be written
SLICES = (EAGER, 256 * KIB, MIB, 4 * MIB)


def run(device: str | None, path: Path, *, quick: bool) -> None:
    """In each rank of a job."""
    try:
        world = zh.World.from_env(device=device)
    except zh.Error as error:
        raise click.ClickException(
            f"--tune measures between the ranks of a job: start it with `torchrun --nproc-per-node 2 -m zerohop bench collectives "
            f"--tune {path}`, with --nnodes and --rdzv-endpoint for several hosts (there is no job: {error})"
        ) from None
    with world:
        rows = tuned(world, SIZES[::2] if quick else SIZES)
        if world.rank == 0:
            write_table(path, table_with(rows))
            click.echo(f"written to {path}: set {VARIABLE} to such a file on all ranks")
        world.barrier()


def candidates(nbytes: int, hosts: int, ranks: int) -> Iterator[tuple[str, int]]:
    """Algorithms and slices."""
    places = ["flat"] if hosts in (1, ranks) else ["flat", "hosts"]
    ways = [""] if hosts == 1 or hosts == 2 else ["", " pairs"]
    for place in places:
        for way in ways:
            if nbytes <= EAGER:
                yield f"{place}{way} whole", EAGER
            for each in SLICES if nbytes >= LONG else SLICES[:1]:
                if nbytes > KIB:
                    yield f"{place}{way}", each


def tuned(world: zh.World, sizes: tuple[int, ...]) -> list[Row]:
    """All ranks call it, and get the same rows: for up to as many hosts and ranks as the World has."""
    lines = world._desk.lines
    world.all_reduce(0)  # the ranks know where all are
    hosts, ranks = lines.topology(Deadline(0)).hosts, world.size
    rows = list[Row]()
    for nbytes in sizes:
        best = dict[tuple[str, int], float]()
        for _ in range(TURNS):  # in turn, as other programs may take their time
            for candidate in candidates(nbytes, hosts, ranks):
                world.barrier()
                lines.go_by([Row(None, None, None, *candidate)])
                seconds = _seconds(world, nbytes)
                best[candidate] = min(seconds, best.get(candidate, seconds))
        algorithm, each = min(best, key=best.__getitem__)
        if world.rank == 0:
            shown = [f"{a} {human_bytes(s)}: {t * 1e6:.0f} us" for (a, s), t in best.items()]
            click.echo(f"{human_bytes(nbytes)}: {', '.join(shown)}")
        if rows and rows[-1][3:] == (algorithm, each):
            rows.pop()
        rows.append(Row(hosts, ranks, 2 * nbytes, algorithm, each))
    rows[-1] = rows[-1]._replace(nbytes=None)
    return rows


def _seconds(world: zh.World, nbytes: int) -> float:
    """The median of the slowest rank, the same on all."""
    array = np.zeros(max(1, nbytes // 4), np.float32)
    few = median(each_of(lambda: world.all_reduce(array), FEWEST))
    times = world.all_reduce(int(SECONDS / max(few, 1e-6)), "min")
    taken = each_of(lambda: world.all_reduce(array), min(max(times, FEWEST), MOST))
    return float(world.all_reduce(median(taken), "max"))


def table_with(rows: list[Row]) -> list[Row]:
    """With those for other Worlds."""
    first = [row for row in DEFAULT if row.hosts == 1 and rows[0].hosts != 1]
    return [*first, *rows, *(row for row in DEFAULT if row not in first)]

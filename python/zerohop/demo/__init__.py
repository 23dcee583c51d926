"""`zerohop demo`: a real job over queue pairs between processes of this machine, checked to the last bit.

1. The 2-D heat equation on a grid of several hundred MB, split by rows; halos travel by one-sided writes
   with notifications; rank 0 reads everybody's rows and compares them with a single-process reference.
2. The state_dict of a transformer of 328 MB, published by name on rank 0, read by all others, compared by
   hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from zerohop.demo.model import model_nbytes
from zerohop.host import available_memory, decimal_bytes, has_torch
from zerohop.local import RankFailed, Ranks

DEFAULT_GRID_NBYTES = 400_000_000
SMALLEST_GRID_NBYTES = 16_000_000
PROCESS_NBYTES = 100 << 20  # an interpreter with numpy and an Endpoint
TORCH_NBYTES = 500 << 20  # imported, and while it builds the model
GRIDS = 4  # the ranks hold two grids between them, and rank 0's reference two more
ROWS_PER_RANK = 2  # at least: the edge above is not the edge below
SHARE_OF_FREE = 0.8  # what the demo takes for itself; the rest stays with the machine


class DoesNotFit(RuntimeError):
    """Grid, ranks and memory do not go together; the message says what to change."""


@dataclass(frozen=True)
class Options:
    ranks: int = 2
    device: str | None = None
    grid_nbytes: int | None = None  # None: the default, or what memory allows
    steps: int = 50


def needed_memory(grid_nbytes: int, ranks: int, torch: bool) -> int:
    """Bytes at the demo's peak: the grids are gone when the model comes."""
    model = ranks * model_nbytes() + (TORCH_NBYTES if torch else 0)
    return ranks * PROCESS_NBYTES + max(GRIDS * grid_nbytes, model)


def grid_side(grid_nbytes: int) -> int:
    """Rows and columns of the square float32 grid of at most so many bytes."""
    return math.isqrt(grid_nbytes // 4)


def choose_grid(options: Options, free: int, torch: bool) -> int:
    """Bytes of the grid to run, no more than `free` bytes of memory allow; raises DoesNotFit."""
    wanted = options.grid_nbytes or DEFAULT_GRID_NBYTES
    if grid_side(wanted) < ROWS_PER_RANK * options.ranks:
        raise DoesNotFit(
            f"a grid of {grid_side(wanted)} rows is too small for {options.ranks} ranks: "
            "use fewer --ranks or a larger --size"
        )
    usable = int(free * SHARE_OF_FREE)
    if needed_memory(wanted, options.ranks, torch) <= usable:
        return wanted
    smallest = needed_memory(SMALLEST_GRID_NBYTES, options.ranks, torch)
    if options.grid_nbytes is not None or smallest > usable:
        need = needed_memory(wanted, options.ranks, torch) if options.grid_nbytes else smallest
        raise DoesNotFit(
            f"{options.ranks} ranks need {decimal_bytes(need)} of memory but only "
            f"{decimal_bytes(usable)} of the {decimal_bytes(free)} available may be used: "
            "free some memory, or use fewer --ranks or a smaller --size"
        )
    return (usable - options.ranks * PROCESS_NBYTES) // GRIDS


def run(options: Options, console: Console) -> bool:
    """Runs the demo, prints what came of it, and says whether every check held."""
    from zerohop.demo.job import Job, work  # needs the extension module
    from zerohop.demo.report import checks, print_report

    try:
        free = available_memory()
        grid_nbytes = choose_grid(options, free, has_torch())
        side = grid_side(grid_nbytes)
        if options.grid_nbytes is None and grid_nbytes < DEFAULT_GRID_NBYTES:
            console.print(f"The grid is cut to {decimal_bytes(grid_nbytes)}: memory is short here.")
        job = Job(options.ranks, side, options.steps, options.device)
        with _progress(console) as progress:
            bars = _Bars(progress)
            with Ranks(work, options.ranks, job, on_report=bars.update) as ranks:
                results = ranks.results()
    except (DoesNotFit, RankFailed) as error:
        console.print("[bold red]zerohop demo stopped:[/]", escape(str(error)), soft_wrap=True)
        return False
    print_report(job, results, console)
    return all(held for _, held, _ in checks(job, results))


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


class _Bars:
    """One bar for each thing that is done; it shows the rank that is furthest."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, tuple[TaskID, int]] = {}  # what: (the bar, how far)

    def update(self, rank: int, report: tuple[str, int, int]) -> None:
        what, done, total = report
        if what not in self._tasks:
            self._tasks[what] = (self._progress.add_task(what, total=total), 0)
        task, furthest = self._tasks[what]
        if done > furthest:
            self._tasks[what] = (task, done)
            self._progress.update(task, completed=done)

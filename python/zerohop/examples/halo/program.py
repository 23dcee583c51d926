"""The command line of this example."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from zerohop.examples import job
from zerohop.examples.command import (
    device_option,
    ended,
    enough_memory,
    json_option,
    ranks_of,
    ranks_option,
    where,
)
from zerohop.examples.halo.plan import Plan
from zerohop.examples.halo.rank import Finding, Spec, work
from zerohop.examples.halo.report import print_finding, write_finding

NAME = "halo"
_RANKS = 2  # where nobody says how many
_ARRAYS = 9  # of the whole: two, one of scratch, what is gathered, the reference


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rows", default=1024, show_default=True, type=click.IntRange(1, 1 << 15), help="Of the array."
)
@click.option(
    "--columns",
    default=1024,
    show_default=True,
    type=click.IntRange(1, 1 << 15),
    help="Of the array; each rank has some of them.",
)
@click.option("--steps", default=200, show_default=True, type=click.IntRange(1), help="Time steps.")
@ranks_option(_RANKS)
@device_option
@json_option
@click.pass_context
def main(
    context: click.Context,
    rows: int,
    columns: int,
    steps: int,
    ranks: int | None,
    device: str | None,
    json_path: Path | None,
) -> None:
    """The 2-D heat equation on an array that the ranks have split by columns, with CuPy on GPUs and NumPy without.

    Every cell is compared with what one process computes. Exit status: 0 if all are right, 1 if not, 2 for wrong usage.
    """
    size = ranks_of(ranks, _RANKS)
    if columns < size:
        raise click.UsageError(f"--columns {columns} are less than one for each of {size} ranks")
    spec = Spec(Plan(rows, columns, steps, size), where(device, "cupy"))
    what = f"arrays of {rows} x {columns} float32"
    enough_memory(what, _ARRAYS * 4 * rows * columns, "fewer --rows or --columns")
    context.exit(ended(NAME, lambda: tell(spec, job.run(NAME, work, spec, size), json_path)))


def tell(spec: Spec, finding: Finding | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if finding is None:
        return True
    print_finding(spec, finding, Console())
    if json_path is not None:
        write_finding(json_path, spec, finding)
    return not finding.wrong

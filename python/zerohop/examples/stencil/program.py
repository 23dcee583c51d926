"""The command line of this example."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from zerohop.examples import job
from zerohop.examples.command import common_options, ended, ranks_of, where_and_how
from zerohop.examples.stencil.plan import LEAST_ROWS
from zerohop.examples.stencil.rank import Finding, Spec, work
from zerohop.examples.stencil.report import print_findings, write_findings

NAME = "stencil"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--side",
    default=2048,
    show_default=True,
    type=click.IntRange(LEAST_ROWS, 32768),
    help="Rows and columns of the grid.",
)
@click.option("--steps", default=500, show_default=True, type=click.IntRange(1), help="Time steps.")
@common_options
@click.pass_context
def main(
    context: click.Context,
    side: int,
    steps: int,
    ranks: int | None,
    device: str | None,
    by: str | None,
    json_path: Path | None,
) -> None:
    """The 2-D heat equation on a grid that the ranks have split by rows, and whose halos they exchange.

    Every cell is compared with a reference. Exit status: 0 if all are right, 1 if not, 2 for wrong usage.
    """
    size = ranks_of(ranks)
    if side < LEAST_ROWS * size:
        raise click.UsageError(
            f"--side {side} is less than {LEAST_ROWS} rows for each of {size} ranks"
        )
    devices, ways = where_and_how(device, by)
    spec = Spec(side, steps, ways, devices)
    context.exit(ended(NAME, lambda: tell(spec, size, job.run(NAME, work, spec, size), json_path)))


def tell(spec: Spec, ranks: int, findings: list[Finding] | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if findings is None:
        return True
    print_findings(spec, ranks, findings, Console())
    if json_path is not None:
        write_findings(json_path, spec, findings)
    return not any(finding.wrong for finding in findings)

"""The command line of this example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from zerohop.examples import job
from zerohop.examples.command import common_options, ended, ranks_of, where_and_how
from zerohop.examples.matvec.rank import Finding, Spec, work
from zerohop.examples.matvec.report import print_findings, write_findings

NAME = "matvec"
BATCHES = (480, 960, 1920, 3840, 7680, 15360)
LARGEST = 1 << 16  # vectors; 256 MiB of matrices
ROUNDS = {True: 2000, False: 100}  # on GPUs, on the CPU


class Vectors(click.IntRange):
    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value!r} is no number of vectors from {self.min} to {self.max}; give --batch once for each size, as "
                "--batch 480 --batch 960",
                param,
                ctx,
            )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--batch",
    "batches",
    multiple=True,
    type=Vectors(1, LARGEST),
    help=f"Vectors of a batch; several may be given. Default: {', '.join(map(str, BATCHES))}.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help=f"Batches for each figure. Default: {ROUNDS[True]} on GPUs, {ROUNDS[False]} on the CPU.",
)
@common_options
@click.pass_context
def main(
    context: click.Context,
    batches: tuple[int, ...],
    rounds: int | None,
    ranks: int | None,
    device: str | None,
    by: str | None,
    json_path: Path | None,
) -> None:
    """A service that multiplies vectors by 32x32 matrices: rank 0 asks, the other ranks answer.

    Every product is compared with a reference. Exit status: 0 if all are right, 1 if not, 2 for wrong usage.
    """
    size = ranks_of(ranks)
    if size < 2:
        raise click.UsageError("a client and a server are two ranks at least: --ranks 2")
    sizes = tuple(dict.fromkeys(batches)) or BATCHES
    if min(sizes) < size - 1:
        raise click.UsageError(f"--batch {min(sizes)} is too small for {size - 1} servers to share")
    devices, ways = where_and_how(device, by)
    spec = Spec(sizes, rounds or ROUNDS[devices != ("cpu",)], ways, devices)
    context.exit(ended(NAME, lambda: tell(job.run(NAME, work, spec, size), json_path)))


def tell(findings: list[Finding] | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if findings is None:
        return True
    console = Console()
    print_findings(findings, console)
    if json_path is not None:
        write_findings(json_path, findings)
    return not any(finding.wrong for finding in findings)

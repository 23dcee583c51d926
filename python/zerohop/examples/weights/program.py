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
from zerohop.examples.weights.plan import COPIES, Plan
from zerohop.examples.weights.rank import Finding, Spec, work
from zerohop.examples.weights.report import print_finding, write_finding

NAME = "weights"
_RANKS = 4  # where nobody says how many


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--layers",
    default=8,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Layers of the model.",
)
@click.option(
    "--width",
    default=512,
    show_default=True,
    type=click.IntRange(1, 1 << 14),
    help="Features of a layer; it has width x (width + 1) parameters, float32.",
)
@click.option(
    "--versions",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10**4),
    help="Versions to train and to push.",
)
@click.option(
    "--kill",
    "killed",
    metavar="RANK",
    type=click.IntRange(1),
    help="This reader dies half-way, to show that the others go on. Of ranks that are started here.",
)
@ranks_option(_RANKS)
@device_option
@json_option
@click.pass_context
def main(
    context: click.Context,
    layers: int,
    width: int,
    versions: int,
    killed: int | None,
    ranks: int | None,
    device: str | None,
    json_path: Path | None,
) -> None:
    """A trainer pushes the parameters of a model to many readers, which use one version while the next one comes.

    Rank 0 is the trainer. Every number of every version is compared with a reference. Exit status: 0 if all are right and no
    reader was lost but the one of --kill, 1 if not, 2 for wrong usage.
    """
    size = ranks_of(ranks, _RANKS)
    if size < 2:
        raise click.UsageError("a trainer and a reader are two ranks at least: --ranks 2")
    check_killed(killed, size)
    spec = Spec(Plan(layers, width, versions), where(device), killed)
    if spec.devices == ("cpu",):
        # Copies, and at every rank a reference, or the parameters and their gradients.
        needed = (COPIES * (size - 1) + 3 * size) * spec.plan.nbytes
        enough_memory(
            f"{size} ranks with {spec.plan.parameters:,} parameters",
            needed,
            "fewer --layers or --width",
        )
    readers = range(1, size)
    context.exit(
        ended(NAME, lambda: tell(spec, job.run(NAME, work, spec, size, readers), json_path))
    )


def check_killed(killed: int | None, size: int) -> None:
    """Raises click.UsageError."""
    if killed is None:
        return
    if job.launched_size() is not None:
        raise click.UsageError(
            "--kill is for ranks that this program starts: a launcher ends the whole job when one dies"
        )
    if not size > 2 or killed >= size:
        raise click.UsageError(
            f"--kill {killed} of {size} ranks: name one from 1 to {size - 1}, of three ranks at least"
        )


def tell(spec: Spec, finding: Finding | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if finding is None:
        return True
    print_finding(spec, finding, Console())
    if json_path is not None:
        write_finding(json_path, spec, finding)
    return not finding.wrong and set(finding.lost) <= {spec.killed}

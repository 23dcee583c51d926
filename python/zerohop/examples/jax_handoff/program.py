"""The command line of this example."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click
from rich.console import Console

from zerohop.examples import job
from zerohop.examples.command import (
    device_option,
    ended,
    enough_memory,
    json_option,
    only_two,
    where,
)
from zerohop.examples.jax_handoff.rank import Finding, Spec, work
from zerohop.examples.jax_handoff.report import print_finding, write_finding

NAME = "jax_handoff"
_EACH = (
    32  # bytes that an element takes on both ranks, with references and what they are computed from
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rows",
    default=1024,
    show_default=True,
    type=click.IntRange(1, 1 << 15),
    help="Of each array.",
)
@click.option(
    "--columns",
    default=1024,
    show_default=True,
    type=click.IntRange(1, 1 << 15),
    help="Of each array.",
)
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(1, 10**6),
    help="Arrays of each dtype.",
)
@device_option
@json_option
@click.pass_context
def main(
    context: click.Context,
    rows: int,
    columns: int,
    rounds: int,
    device: str | None,
    json_path: Path | None,
) -> None:
    """JAX arrays, bfloat16 too, are written by one process into another, which reads them as its own, in place.

    Every element is compared with a reference. Exit status: 0 if all are right, 1 if not, 2 for wrong usage.
    """
    if importlib.util.find_spec("jax") is None:
        raise click.UsageError("JAX is not installed: pip install 'zerohop[jax]'")
    size, spec = only_two(NAME), Spec(rows, columns, rounds, where(device, "jax"))
    what = f"arrays of {rows} x {columns} on two ranks"
    enough_memory(what, 2 * _EACH * rows * columns, "fewer --rows or --columns")
    context.exit(ended(NAME, lambda: tell(spec, job.run(NAME, work, spec, size), json_path)))


def tell(spec: Spec, finding: Finding | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if finding is None:
        return True
    print_finding(spec, finding, Console())
    if json_path is not None:
        write_finding(json_path, spec, finding)
    return not any(outcome.wrong for outcome in finding.outcomes)

"""The command line of this example."""

from __future__ import annotations

from pathlib import Path

import click

from zerohop.examples import job
from zerohop.examples.command import device_option, ended, json_option, only_two, where
from zerohop.examples.osu.plan import WINDOW, Plan
from zerohop.examples.osu.rank import Finding, Spec, work
from zerohop.examples.osu.report import lines, write_finding

NAME = "osu"
_LARGEST = 1 << 30  # bytes of a message


def least_and_most(
    context: click.Context, parameter: click.Parameter, value: str
) -> tuple[int, int]:
    """[MIN:]MAX in bytes, as OSU's programs take it."""
    least, _, most = value.rpartition(":")
    words = (least or "1", most)
    if all(word.isascii() and word.isdecimal() for word in words):
        sizes = int(words[0]), int(words[1])
        if 1 <= sizes[0] <= sizes[1] <= _LARGEST:
            return sizes
    raise click.BadParameter(
        f"{value!r} is no range of sizes: give [MIN:]MAX in bytes, from 1 to {_LARGEST}, as in 8:65536",
        context,
        parameter,
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--test",
    type=click.Choice(["latency", "bw"]),
    default="latency",
    show_default=True,
    help=f"Ping-pong, or windows of {WINDOW} writes.",
)
@click.option(
    "-m",
    "--message-size",
    "sizes",
    metavar="[MIN:]MAX",
    callback=least_and_most,
    default="1:4194304",
    show_default=True,
    help="Bytes of the smallest and the largest message; those in between are doubled.",
)
@click.option(
    "-i",
    "--iterations",
    type=click.IntRange(1, 10**8),
    help="Round trips or windows of each size. Default: 1000 or 100, and 100 or 20 above 8192 bytes.",
)
@device_option
@json_option
@click.pass_context
def main(
    context: click.Context,
    test: str,
    sizes: tuple[int, int],
    iterations: int | None,
    device: str | None,
    json_path: Path | None,
) -> None:
    """Latency or bandwidth between two ranks, as a table in the format of the OSU micro-benchmarks.

    Ranks that share a core take about ZEROHOP_SPIN, 200 us, from one to the other: keep them apart (mpirun --bind-to core).

    Under mpirun (by mpi4py) and torchrun the ranks are those of the job. What arrives is compared with what was sent. Exit
    status: 0 if it is the same, 1 if not, 2 for wrong usage.
    """
    size, spec = only_two(NAME), Spec(Plan(test, *sizes, iterations), where(device))
    context.exit(ended(NAME, lambda: tell(spec, job.run(NAME, work, spec, size), json_path)))


def tell(spec: Spec, finding: Finding | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if finding is None:
        return True
    click.echo("\n".join(lines(spec, finding)))
    if json_path is not None:
        write_finding(json_path, spec, finding)
    return not finding.wrong

"""Each rank writes an array of squares to the next one, and checks the one that it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import numpy as np

from zerohop.examples import job
from zerohop.examples.command import ended, ranks_of, ranks_option

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.world import World

NAME = "numpy_only"
_RANKS = 2  # where nobody says how many
_LINE = 200  # bytes
SLOT = 7  # of the notification; any from 0 to 16383


def squares(rank: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What that rank writes."""
    return (np.arange(count) + 1000 * rank) ** 2


def work(world: World, count: int, report: Report) -> list[str]:
    """A line of each rank; what is wrong begins with WRONG."""
    left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size

    inbox = world.endpoint.empty(count, "int64")  # memory that peers may write
    world.endpoint.share("inbox", inbox)
    peer = world.peer(right)
    written = peer.write(squares(world.rank, count), peer.lookup("inbox"), notify=(SLOT, 1))

    world.endpoint.wait_notify(SLOT)  # the data is there before
    found = np.asarray(inbox)  # the memory itself, without a copy
    wrong = np.flatnonzero(found != squares(left, count))
    written.wait()

    line = f"{world.rank:>4}  {left:>4}  {found[-1]:>16,}  {written.route.kind}"
    if len(wrong):
        at = wrong[0]
        line = f"WRONG, of rank {left}: element {at} is {found[at]}, not {squares(left, count)[at]}"
    lines = np.empty((world.size, _LINE), np.uint8)
    world.all_gather(lines, np.frombuffer(f"{line:<{_LINE}}"[:_LINE].encode(), np.uint8))
    world.barrier()  # nobody leaves while another still needs it
    return [bytes(each).decode().rstrip() for each in lines]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--count",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1 << 24),
    help="Numbers of each.",
)
@ranks_option(_RANKS)
@click.pass_context
def main(context: click.Context, count: int, ranks: int | None) -> None:
    """Each rank writes a NumPy array into the next one's memory. Exit status: 0 if all is right, 1 if not."""
    size = ranks_of(ranks, _RANKS)
    context.exit(ended(NAME, lambda: tell(job.run(NAME, work, count, size))))


def tell(lines: list[str] | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if lines is None:
        return True
    click.echo("rank  from       last square  route")
    for line in lines:
        click.echo(line)
    right = not any(line.startswith("WRONG") for line in lines)
    if right:
        click.echo("Every number is right.")
    return right

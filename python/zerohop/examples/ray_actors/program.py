"""The command line of this example: the driver."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from zerohop.examples.command import ended
from zerohop.examples.failures import Stopped
from zerohop.examples.ray_actors.actors import Board, Checked, Member

NAME = "ray_actors"
_ROUND_S = 120.0  # bound of a round


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--actors",
    "size",
    default=3,
    show_default=True,
    type=click.IntRange(2, 64),
    help="Members of the World.",
)
@click.option(
    "--count",
    default=1 << 20,
    show_default=True,
    type=click.IntRange(1, 1 << 26),
    help="Numbers that each writes, int64.",
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 10**6))
@click.option(
    "--address", help="Of a Ray cluster, such as auto. Default: one is started on this host."
)
@click.pass_context
def main(context: click.Context, size: int, count: int, rounds: int, address: str | None) -> None:
    """Actors of Ray exchange arrays, each with the next, and check what they get.

    Exit status: 0 if all is right, 1 if not, 2 for wrong usage. Actors on several hosts need ZEROHOP_DEVICE=soft0@eth0 there, or
    an RDMA adapter.
    """
    if importlib.util.find_spec("ray") is None:
        raise click.UsageError("Ray is not installed: pip install 'zerohop[ray]'")
    context.exit(ended(NAME, lambda: tell(run(size, count, rounds, address))))


def run(size: int, count: int, rounds: int, address: str | None) -> list[list[Checked]]:
    """By rounds, of every member. Raises Stopped."""
    ray: Any = import_module("ray")
    try:
        with cluster(ray, address):
            remote = ray.remote(num_cpus=0)  # they wait more than they compute
            board = remote(Board).remote()
            members = [remote(Member).remote(board, rank, size, count) for rank in range(size)]
            found = []
            for number in range(rounds):
                asked = [member.exchange.remote(number) for member in members]
                found.append(ray.get(asked, timeout=_ROUND_S))
            ray.get([member.close.remote() for member in members], timeout=_ROUND_S)
            return found
    except ray.exceptions.RayError as error:
        last = str(error).strip().splitlines()[-1]
        raise Stopped(f"an actor has failed: {last}") from error


@contextmanager
def cluster(ray: Any, address: str | None) -> Iterator[None]:
    own = {"include_dashboard": False} if address is None else {"address": address}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
    try:
        yield
    finally:
        ray.shutdown()


def tell(found: list[list[Checked]]) -> bool:
    """Whether all is right."""
    console = Console()
    table = Table(title=f"{len(found)} rounds between actors", title_justify="left")
    for name in ("actor", "from", "wrong numbers"):
        table.add_column(name, justify="right")
    for each in zip(*found, strict=True):
        wrong = sum(checked.wrong for checked in each)
        table.add_row(str(each[0].rank), str(each[0].left), str(wrong))
    console.print(table)
    console.print(f"The arrays go {found[0][0].route}.", markup=False, soft_wrap=True)
    right = not any(checked.wrong for every in found for checked in every)
    if right:
        console.print("Every number is right.")
    else:
        console.print("[bold red]WRONG.[/]")
    return right

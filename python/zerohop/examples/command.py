"""What the command lines of the examples share: options, and how a job ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from zerohop.bench.command import check_file
from zerohop.examples.failures import Stopped
from zerohop.examples.job import launched_size
from zerohop.examples.place import choose_devices, choose_ways
from zerohop.host import available_memory, human_bytes

__all__ = [
    "common_options",
    "device_option",
    "ended",
    "enough_memory",
    "json_option",
    "only_two",
    "ranks_of",
    "ranks_option",
    "where",
    "where_and_how",
]


json_option = click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_file,
    help="Write all figures here.",
)
device_option = click.option(
    "--device",
    metavar="DEVICES",
    help="cpu, or GPUs such as cuda:0,cuda:1, which the ranks take in turn. Default: all GPUs, else cpu.",
)


_RANKS = 2  # where nobody says how many


def ranks_option(default: int) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(
        "--ranks",
        type=click.IntRange(1, 64),
        help=f"Processes to start on this host. Default: {default}; under torchrun and mpirun those of the job.",
    )


def common_options(function: click.decorators.FC) -> click.decorators.FC:
    """--ranks, --device, --by, --json."""
    for option in (
        json_option,
        click.option(
            "--by",
            type=click.Choice(["kernel", "host", "both"]),
            help="Who communicates: a persistent kernel, or the CPU. Default: both on GPUs, host on the CPU.",
        ),
        device_option,
        ranks_option(_RANKS),
    ):
        function = option(function)
    return function


def ranks_of(wanted: int | None, default: int = _RANKS) -> int:
    """Raises click.UsageError where a launcher says otherwise."""
    launched = launched_size()
    if launched is not None and wanted not in (None, launched):
        raise click.UsageError(
            f"--ranks {wanted}, but this job was launched with {launched}: leave --ranks out"
        )
    return launched or wanted or default


def only_two(name: str) -> int:
    """Of examples for two ranks. Raises click.UsageError where a launcher has started others."""
    launched = launched_size()
    if launched not in (None, 2):
        raise click.UsageError(
            f"{name} has two ranks, but this job was launched with {launched}: launch 2"
        )
    return 2


def enough_memory(what: str, needed: int, remedy: str) -> None:
    """Of the host, bytes. Raises click.UsageError where there is no room."""
    there = available_memory()
    if needed > there:
        raise click.UsageError(
            f"{what} take {human_bytes(needed)}, of which this host has {human_bytes(there)} free: {remedy}"
        )


def where(device: str | None, framework: str = "torch") -> tuple[str, ...]:
    """Devices whose arrays PyTorch has, CuPy ("cupy") or JAX ("jax"). Raises click.UsageError."""
    try:
        return choose_devices(device, framework) or ("cpu",)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def where_and_how(device: str | None, by: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Devices and ways. Raises click.UsageError, which ends with status 2."""
    try:
        devices = choose_devices(device)
        ways = choose_ways(by, devices)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return devices or ("cpu",), ways


def ended(name: str, job: Callable[[], bool]) -> int:
    """The exit status: 0 if every check held, 1 if not or if the job was stopped, 130 after Ctrl-C or SIGTERM."""
    try:
        return 0 if job() else 1
    except Stopped as error:
        click.echo(f"{name} stopped: {error}", err=True)
        return 1
    except KeyboardInterrupt:
        click.echo(f"{name} was interrupted; its ranks have been ended", err=True)
        return 130

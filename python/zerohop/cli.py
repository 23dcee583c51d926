"""The `zerohop` command. Each subcommand imports its modules when it runs, so that --help is quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click

from zerohop import __version__
from zerohop._endpoint.knobs import KNOBS
from zerohop.bench.command import bench, device_option
from zerohop.verify.cli import parse_address, verify

INTERRUPTED = 130  # exit status of a shell after SIGINT


class _Commands(click.Group):
    """On Ctrl-C each prints one line and exits with INTERRUPTED; click's own status, 1, would mean a failure."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            click.echo(f"zerohop {context.invoked_subcommand}: interrupted", err=True)
            context.exit(INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zerohop")
def main() -> None:
    """Exchange arrays between processes over RDMA queue pairs, on any machine."""


@main.command()
@click.option(
    "--ranks", default=2, show_default=True, type=click.IntRange(2, 64), help="Processes."
)
@device_option
@click.pass_context
def demo(context: click.Context, ranks: int, device: str | None) -> None:
    """Solve a heat equation between processes, send a model from one to the others, and check every bit.

    These are two of the examples, zerohop.examples.halo and weights. Here they use queue pairs
    (ZEROHOP_P2P=0); by default processes of one host copy by p2p. Exit status: 0 if all is right, 1 if not.
    """
    variables = {"ZEROHOP_P2P": "0", **os.environ}
    if device is not None:
        variables["ZEROHOP_DEVICE"] = device
    for name in ("halo", "weights"):
        program = ["-m", f"zerohop.examples.{name}", "--ranks", str(ranks)]
        click.echo(f"ZEROHOP_P2P={variables['ZEROHOP_P2P']} python {' '.join(program)}")
        if subprocess.run([sys.executable, *program], env=variables, check=False).returncode:
            context.exit(1)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def topo(as_json: bool) -> None:
    """Show GPUs, RDMA devices and NUMA nodes, and how far apart they are."""
    from zerohop.topology import topology

    machine = topology()
    if as_json:
        click.echo(json.dumps(machine.to_dict(), indent=2))
        return
    from rich.console import Console

    from zerohop.topology.report import print_topology

    print_topology(machine, Console())


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--want",
    type=click.Choice(["host", "p2p", "gpudirect", "staged"]),
    help="Test this route; exit with 0 only if it works here.",
)
@click.option(
    "--peer",
    callback=parse_address,
    metavar="ADDRESS",
    help="Try each route to a counterpart: the output of its --listen, or @FILE that contains it, which keeps "
    "its secret out of the process list.",
)
@click.option("--listen", is_flag=True, help="Be the counterpart: print an address and serve.")
@device_option
@click.pass_context
def doctor(
    context: click.Context,
    as_json: bool,
    want: str | None,
    peer: bytes | None,
    listen: bool,
    device: str | None,
) -> None:
    """Show what works on this machine, what does not, and how to fix it.

    Exit status: 0 if nothing fails, or if the wanted route works; 1 if not; 2 for wrong usage.
    """
    if listen and (as_json or want or peer is not None):
        raise click.UsageError("--listen can be combined only with --verbs")
    from zerohop.doctor import command
    from zerohop.doctor.host import Host
    from zerohop.errors import Error

    if listen:
        try:
            command.listen(device)
        except (Error, ValueError) as error:
            raise click.ClickException(str(error)) from None
    elif peer is not None:
        context.exit(0 if command.pair(peer, want, device, as_json) else 1)
    else:
        context.exit(0 if command.diagnose(Host(), want, device, as_json) else 1)


@main.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--once", is_flag=True, help="Print one table, of one interval, and exit.")
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.05, 3600),
    metavar="SECONDS",
    help="Time between two samples.",
)
@click.pass_context
def top(context: click.Context, addresses: tuple[str, ...], once: bool, interval: float) -> None:
    """Show transfers by peer and route: rates, latencies and errors, until interrupted.

    Of this user's processes on this host that were started with ZEROHOP_METRICS=local (or a port), or of those at
    ADDRESS: 9400, host:9400. Into a pipe the tables are plain text. "now" is the number in flight; latencies are
    those of the last interval, without recv. Exit status with --once: 1 if no process answers.
    """
    from zerohop.observe import view
    from zerohop.observe.sources import named_source

    try:
        sources = [named_source(address) for address in addresses]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    context.exit(0 if view.run(sources, interval, once) else 1)


def _trace(file: TextIO) -> Any:
    try:
        return json.load(file)
    except ValueError as error:
        raise ValueError(f"{file.name!r} is not a trace: {error}") from None


@main.command()
@click.argument("traces", nargs=-1, required=True, type=click.File("r"))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.",
)
def merge(traces: tuple[TextIO, ...], output: Path) -> None:
    """Merge traces of several processes, written by zerohop.record(), into one file for Perfetto."""
    from zerohop.observe.recording import merged, write_whole

    try:
        write_whole(output, *merged(map(_trace, traces)))
    except RecursionError:
        raise click.ClickException("a file is nested too deep: it is not a trace") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _split_ranks(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        ranks = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 1000,100000") from None
    if min(ranks) < 2:
        raise click.BadParameter("a job has at least 2 ranks")
    return ranks


def _knob_option(name: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """The option for a knob of Endpoint, with its range and default."""
    knob = next(knob for knob in KNOBS if knob.name == name)
    low, high = min(knob.allowed), max(knob.allowed)
    return click.option(
        f"--{name.replace('_', '-')}",
        default=knob.default,
        show_default=True,
        type=click.IntRange(low, high),
        help=f"Like {name}= of an Endpoint.",
    )


@main.command()
@click.option(
    "--ranks",
    default="1000,100000",
    show_default=True,
    callback=_split_ranks,
    help="Number of ranks of the job; one column for each number.",
)
@click.option(
    "--peers", type=click.IntRange(1), help="Number of other ranks that a rank uses. Default: all."
)
@click.option(
    "--on",
    default="mlx5",
    show_default=True,
    type=click.Choice(["mlx5", "soft0"]),
    help="RDMA adapters, or the software HCA.",
)
@click.option(
    "--per-host", default=8, show_default=True, type=click.IntRange(1), help="Ranks on one host."
)
@click.option(
    "--adapters", default=1, show_default=True, type=click.IntRange(1), help="Devices of one host."
)
@click.option(
    "--rails", default=1, show_default=True, type=click.IntRange(1, 8), help="Devices of one rank."
)
@_knob_option("message_slots")
@_knob_option("message_bytes")
@_knob_option("send_depth")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_context
def scale(context: click.Context, /, ranks: tuple[int, ...], as_json: bool, **options: Any) -> None:
    """Model the resources of a rank in a large job, and the limit that it meets first.

    Limits of the process and the host are those of this one. It is a model: only the software HCA was measured, no adapter.
    Exit status: 1 if one of the jobs breaks.
    """
    from zerohop.scale import Job, System, limits
    from zerohop.scale.report import as_dict, print_scale

    if options["rails"] > options["adapters"]:
        raise click.UsageError(
            f"--rails {options['rails']} of a rank exceeds --adapters {options['adapters']} of its host"
        )
    jobs, system = [Job(count, **options) for count in ranks], System.here()
    if as_json:
        click.echo(json.dumps(as_dict(jobs, system), indent=2))
    else:
        from rich.console import Console

        print_scale(jobs, system, Console())
    broken = [each for job in jobs for each in limits(job, system) if each.breaks]
    context.exit(0 if all(each.holds for each in broken) else 1)


main.add_command(bench)
main.add_command(verify)

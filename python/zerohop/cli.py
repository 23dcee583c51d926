"""The `zerohop` command. Each subcommand imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click

from zerohop import __version__

SOFT_PEERS = ("ucx", "iperf3", "tcp")
GDA_PEERS = ("nvshmem",)
P2P_PEERS = ("nccl", "torch", "raw", "ucx")


def _device_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--verbs",
        "device",
        metavar="DEVICE",
        help="Verbs device, such as soft0, rxe0 or mlx5_0. Default: what zerohop chooses.",
    )(function)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zerohop")
def main() -> None:
    """Exchange arrays between processes over RDMA queue pairs, on any machine."""


@main.command()
@click.option(
    "--ranks", default=2, show_default=True, type=click.IntRange(1, 64), help="Processes."
)
@_device_option
@click.option(
    "--size",
    type=click.FloatRange(min=0.01),
    metavar="MB",
    help="Size of the heat equation's grid in MB (10**6 bytes). Default: 400, or what memory allows. "
    "The model's state_dict, 328 MB, is moved in any case.",
)
@click.option("--steps", default=50, show_default=True, type=click.IntRange(1), help="Time steps.")
@click.pass_context
def demo(
    context: click.Context, ranks: int, device: str | None, size: float | None, steps: int
) -> None:
    """Solve a heat equation and move a model's state_dict between processes, and check every bit."""
    from rich.console import Console

    from zerohop import demo as job

    nbytes = None if size is None else int(size * 1e6)
    options = job.Options(ranks=ranks, device=device, grid_nbytes=nbytes, steps=steps)
    context.exit(0 if job.run(options, Console()) else 1)


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


def _parse_address(
    context: click.Context, option: click.Parameter, text: str | None
) -> bytes | None:
    if text is None:
        return None
    from zerohop.doctor.address import decode

    try:
        return decode(text)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--want",
    type=click.Choice(["host", "p2p", "gpudirect", "staged"]),
    help="Exit with 0 only if this route works here; it is tried.",
)
@click.option(
    "--peer",
    callback=_parse_address,
    metavar="ADDRESS",
    help="Try each route to a counterpart: what its --listen printed, or @FILE with it, which keeps "
    "the secret in it out of the list of processes.",
)
@click.option("--listen", is_flag=True, help="Be the counterpart: print an address and serve.")
@_device_option
@click.pass_context
def doctor(
    context: click.Context,
    as_json: bool,
    want: str | None,
    peer: bytes | None,
    listen: bool,
    device: str | None,
) -> None:
    """Say what works on this machine, what does not, and what helps.

    Exit status: 0 if nothing fails, or if the wanted route works; 1 if not; 2 for wrong usage.
    """
    if listen and (as_json or want or peer is not None):
        raise click.UsageError("--listen goes with --verbs alone")
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
@click.option("--once", is_flag=True, help="Print one table, of one interval, and end.")
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.05, 3600),
    metavar="SECONDS",
    help="Between two looks.",
)
@click.pass_context
def top(context: click.Context, addresses: tuple[str, ...], once: bool, interval: float) -> None:
    """Show what processes move: rates, latencies and errors by peer and route, until interrupted.

    Of this user's processes on this host that were started with ZEROHOP_METRICS=local (or a port), or of those at
    ADDRESS: 9400, host:9400. Through a pipe the tables come as plain text. "now" is what is under way; latencies are
    those of the last interval, without recv. Exit status with --once: 1 if nobody answers.
    """
    from zerohop.top import view
    from zerohop.top.sources import named_source

    try:
        sources = [named_source(address) for address in addresses]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    try:
        context.exit(0 if view.run(sources, interval, once) else 1)
    except KeyboardInterrupt:
        context.exit(0)


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
    """Lay traces of several processes, which zerohop.record() wrote, together in one file for Perfetto."""
    from zerohop.recording import merged, write_whole

    try:
        write_whole(output, *merged(map(json.load, traces)))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


@main.group()
def bench() -> None:
    """Measure zerohop beside its peers."""


def _peers_option(known: tuple[str, ...]) -> Callable[[click.decorators.FC], click.decorators.FC]:
    def split(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(filter(None, text.split(","))))
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}")
        return names

    return click.option(
        "--vs",
        "peers",
        default="",
        callback=split,
        metavar="PEERS",
        help=f"Measure these in the same run: any of {','.join(known)}.",
    )


def _split_sizes(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(sorted({_parse_size(word) for word in text.split(",")}))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _parse_size(word: str) -> int:
    """'8', '64K', '1M', '1G' (powers of 1024) -> bytes; atomics and notifications want 8 at least."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(word[-1:].upper(), 1)
    digits = word[:-1] if scale > 1 else word
    if not digits.isdecimal() or not 8 <= int(digits) * scale <= 1 << 30:
        raise ValueError(f"{word!r} is not a size from 8 to 1G, such as 8, 64K or 1M")
    return int(digits) * scale


def check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuses at once what could not be written once all is measured."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "cannot be written" if path.exists() else f"{str(path.parent)!r} cannot be written to"
        raise click.BadParameter(f"{str(path)!r}: {why}; name a file in a folder of yours")
    return path


def _check_plot(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if check_file(context, option, path) is None:
        return None
    from zerohop.bench.plot import check_plot

    assert path is not None
    try:
        check_plot(path)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return path


def _bench_options(function: click.decorators.FC) -> click.decorators.FC:
    file = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option("--sizes", callback=_split_sizes, metavar="SIZES", help=_SIZES_HELP),
        click.option("--quick", is_flag=True, help="Fewer sizes, shorter runs."),
        click.option("--plot", "plot_path", type=file, callback=_check_plot, help=_PLOT_HELP),
        click.option("--json", "json_path", type=file, callback=check_file, help=_JSON_HELP),
        _device_option,
    ):
        function = option(function)
    return function


_JSON_HELP = "Write all rows here."
_SIZES_HELP = "Message sizes, such as 8,64K,1M."
_PLOT_HELP = "Draw latency and bandwidth over size here (.png, .svg, .pdf); needs matplotlib."


@bench.command()
@_peers_option(SOFT_PEERS)
@_bench_options
@click.pass_context
def soft(context: click.Context, /, **options: Any) -> None:
    """Latency, bandwidth and cost per call between two processes of this machine."""
    from rich.console import Console

    from zerohop.bench import soft as suite
    from zerohop.bench.plan import Options

    context.exit(0 if suite.run(Options(**options), Console()) else 1)


@bench.command()
@_peers_option(P2P_PEERS)
@click.option("--host", is_flag=True, help="Host arrays instead of GPUs; its peer is ucx.")
@_bench_options
@click.pass_context
def p2p(context: click.Context, /, **options: Any) -> None:
    """Between GPUs of two processes of this host: latency, bandwidth, stream order, lists.

    With one GPU both processes use it. Peers: raw (bare driver copies), torch (copy_ by CUDA IPC), nccl (send and
    recv); with --host ucx (shared memory). Who is missing or fails is told and left out.
    """
    from rich.console import Console

    from zerohop.bench import p2p as suite
    from zerohop.bench.plan import Options

    context.exit(0 if suite.run(Options(**options), Console()) else 1)


@bench.command()
@_peers_option(GDA_PEERS)
@click.option("--placement", is_flag=True, help="Also tell where a kernel's queue pair can lie.")
@_bench_options
@click.pass_context
def gda(context: click.Context, /, **options: Any) -> None:
    """Kernels of two processes that communicate by themselves: latency, bandwidth, rates.

    With one GPU both processes use it. Beside a bare copy by a kernel and, if asked for, nvshmem. Needs CuPy; nvshmem
    its package and nvcc. Who is missing or fails is told and left out.
    """
    from rich.console import Console

    from zerohop.bench import gda as suite
    from zerohop.bench.plan import Options

    context.exit(0 if suite.run(Options(**options), Console()) else 1)

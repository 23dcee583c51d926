"""`zerohop bench`: its commands and their peers. The modules that measure are imported on use."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from zerohop.bench.placement import FREE, PLACEMENTS

ALL = "all"


@dataclass(frozen=True)
class Command:
    """module: in zerohop.bench, with make(options) -> Suite. placements: the default ones."""

    module: str
    peers: tuple[str, ...]
    help: str
    placements: tuple[str, ...] = (FREE,)


COMMANDS = {
    "soft": Command(
        "soft",
        ("ucx", "iperf3", "tcp"),
        """Latency, bandwidth and memory of Peers over verbs, between two processes of this machine.

        Peers: ucx (over TCP), iperf3, tcp (a bare socket).""",
    ),
    "host": Command(
        "host",
        ("ucx", "mpi", "nixl", "gloo", "torch"),
        """Host arrays of two processes: mapped memory, plain memory, and through the device.

        Peers: ucx (shared memory, CMA, TCP), mpi (mpi4py by mpirun), nixl (its UCX backend), gloo (torch.distributed),
        torch (copy_ into shared memory).""",
    ),
    "wait": Command(
        "wait",
        ("pipe", "tcp", "mpi", "gloo"),
        """How long processes wait for each other: two on a core each, on one core, and unpinned; jobs of 2, 4 and 8 ranks.

        Peers: pipe, tcp (a bare socket: waiting in recv, and polling with sched_yield), mpi (Open MPI by mpi4py, with
        mpi_yield_when_idle), gloo (torch.distributed).""",
        PLACEMENTS,
    ),
    "collectives": Command(
        "collectives",
        ("mpi", "gloo"),
        """Calls of all ranks of a job: all_reduce (the only one with --quick), reduce_scatter, all_gather, all_to_all, broadcast.

        Bus bandwidth as nccl-tests defines it. Ours by p2p and without it (soft0 over TCP). Peers: mpi (Open MPI by
        mpi4py), gloo (torch.distributed).""",
    ),
    "gpu-collectives": Command(
        "gpu_collectives",
        ("nccl", "symm_mem"),
        """The same calls between the GPUs of this host, in CUDA graphs, a rank for each GPU.

        With one GPU two ranks use it, as threads of a process. Again with arrays in a segment. Needs PyTorch. Peers: nccl, symm_mem (the all_reduce of
        PyTorch's symmetric memory).""",
    ),
    "train": Command(
        "train",
        ("gloo", "nccl"),
        """A step of DDP and of FSDP2 on a transformer, with the backend zerohop of torch.distributed and with others.

        A rank for each GPU if there are several (350 million parameters of bfloat16), else two ranks on the CPU (26
        million of float32). Needs PyTorch.""",
    ),
    "p2p": Command(
        "p2p.suite",
        ("nccl", "torch", "raw"),
        """Between GPUs of two processes of this host: latency, bandwidth, stream order, lists.

        With one GPU both processes use it. Peers: raw (bare driver copies), torch (copy_ by CUDA IPC), nccl (send and
        recv).""",
    ),
    "gda": Command(
        "gda.suite",
        ("nvshmem",),
        """Kernels of two processes that communicate: latency, bandwidth, rates.

        With one GPU both processes use it. Compared with a bare copy by a kernel and, on request, nvshmem. Needs CuPy;
        nvshmem needs its package and nvcc.""",
    ),
    "verbs": Command(
        "verbs",
        ("raw", "perftest"),
        """Bare queue pairs by zh.verbs: from post to completion, bandwidth, atomics, several queue pairs.

        Peers: raw (the same queue pairs from C++), perftest (on a device of libibverbs).""",
    ),
    "registration": Command(
        "registration",
        ("raw",),
        """Cost of registering and closing memory, by size, and repeated.

        Host memory and, if there is a GPU, its memory with and without the cache. Peer: raw (ibv_reg_mr by
        zh.verbs).""",
    ),
    "python": Command(
        "python",
        (),
        """Cost of calls from Python, next to the same calls from C++, by p2p and by the device.""",
    ),
}


def device_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--verbs",
        "device",
        metavar="DEVICE",
        help="Verbs device, such as soft0, rxe0 or mlx5_0. Default: chosen by zerohop.",
    )(function)


@click.group()
def bench() -> None:
    """Measure zerohop and other libraries side by side, in turn for every figure.

    A library that is missing, fails or hangs is reported and left out.
    """


MOST_RANKS = 64  # of a job of `collectives`


def _split_peers(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, text.split(","))))
    own = COMMANDS[str(context.info_name)].peers
    for name in names:
        if name not in (*own, ALL):
            others = [f"zerohop bench {each}" for each in COMMANDS if name in COMMANDS[each].peers]
            measured = f": it is measured by {' and '.join(others)}" if others else ""
            raise click.BadParameter(f"{name!r} is not one of {', '.join((*own, ALL))}{measured}")
    return own if ALL in names else names


def _split_sizes(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(sorted({parse_size(word) for word in text.split(",")}))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _split_ranks(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = text.split(",")
    if not all(word.isdecimal() and 2 <= int(word) <= MOST_RANKS for word in words):
        raise click.BadParameter(
            f"{text!r} is not a list of numbers from 2 to {MOST_RANKS}, such as 2,4"
        )
    return tuple(sorted({int(word) for word in words}))


def parse_size(word: str) -> int:
    """'8', '64K', '1M', '1G' (powers of 1024) -> bytes; atomics and notifications need at least 8."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(word[-1:].upper(), 1)
    digits = word[:-1] if scale > 1 else word
    if not digits.isdecimal() or not 8 <= int(digits) * scale <= 1 << 30:
        raise ValueError(f"{word!r} is not a size from 8 to 1G, such as 8, 64K or 1M")
    return int(digits) * scale


def check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuses a file that cannot be written, before anything is measured."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "cannot be written" if path.exists() else f"{str(path.parent)!r} cannot be written to"
        raise click.BadParameter(f"{str(path)!r}: {why}; choose a file in a writable folder")
    return path


def _check_plot(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if check_file(context, option, path) is not None:
        from zerohop.bench.plot import check_plot

        assert path is not None
        try:
            check_plot(path)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return path


def _add(name: str, command: Command) -> None:
    file = click.Path(dir_okay=False, path_type=Path)
    peers = f"Measure these in the same run: any of {','.join(command.peers)}, or all."
    if not command.peers:
        peers = "There are no peers."

    @bench.command(name, help=command.help)
    @click.option("--vs", "peers", default="", callback=_split_peers, metavar="PEERS", help=peers)
    @click.option(
        "--sizes", callback=_split_sizes, metavar="SIZES", help="Message sizes, such as 8,64K,1M."
    )
    @click.option(
        "--placement",
        "everything_placed",
        is_flag=True,
        help="Measure with the two ends on a core each, on one core, and unpinned. Default: unpinned; `wait` always measures two ends in all three.",
    )
    @click.option("--quick", is_flag=True, help="Fewer sizes, shorter runs.")
    @click.option(
        "--plot",
        "plot_path",
        type=file,
        callback=_check_plot,
        help="Write a plot to this file (.png, .svg, .pdf); needs matplotlib.",
    )
    @click.option(
        "--json", "json_path", type=file, callback=check_file, help="Write all rows to this file."
    )
    @device_option
    def run(everything_placed: bool, tune_path: Path | None = None, **options: Any) -> None:
        if tune_path is not None:
            from zerohop.bench import tune

            if options.get("ranks"):
                raise click.UsageError(
                    "--tune measures the ranks of the job that runs it: leave out --ranks"
                )
            return tune.run(options["device"], tune_path, quick=options["quick"])
        from rich.console import Console

        from zerohop.bench.plan import Options
        from zerohop.bench.runner import run_suite

        suite = importlib.import_module(f"zerohop.bench.{command.module}")
        placements = PLACEMENTS if everything_placed else command.placements
        made = Options(placements=placements, everything_placed=everything_placed, **options)
        click.get_current_context().exit(0 if run_suite(suite.make, made, Console()) else 1)

    if name == "collectives":
        said = "Numbers of ranks of the jobs, such as 2,16. Default: 2,4,8 (--quick: 2,4)."
        run.params.append(
            click.Option(["--ranks"], callback=_split_ranks, metavar="RANKS", help=said)
        )
        said = "Find the best algorithms for the ranks of this job, which all run this, and write their table to this file."
        run.params.append(click.Option(["--tune", "tune_path"], type=file, help=said))
    if name == "gda":
        said = "Also show where the rings of a kernel's queue pair can lie."
        run.params.append(click.Option(["--rings"], is_flag=True, help=said))


for _name, _command in COMMANDS.items():
    _add(_name, _command)


@bench.command()
@click.argument("before", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--fail-above",
    "limit",
    metavar="PERCENT",
    callback=lambda context, option, text: _parse_percent(text),
    help="Exit with 1 if a figure of zerohop is missing, or worse by more than this and its noise, such as 10%.",
)
@click.pass_context
def compare(context: click.Context, before: Path, after: Path, limit: float | None) -> None:
    """Show the changes from BEFORE to AFTER, two files of --json, and which of them exceed the noise."""
    from rich.console import Console

    from zerohop.bench.compare import run

    try:
        good = run(before, after, limit, Console())
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    context.exit(0 if good else 1)


def _parse_percent(text: str | None) -> float | None:
    """'10%' or '10' -> 0.1"""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise click.BadParameter(f"{text!r} is not a percentage such as 10%")
    return value / 100

"""The demo's closing tables: what moved, by which route, how fast, and whether every check held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.host import decimal_bytes, human_seconds
from zerohop.stats import percentiles

if TYPE_CHECKING:
    from zerohop.demo.job import Job, RankResult

Check = tuple[str, bool, str]  # what, whether it held, the figures behind it


def checks(job: Job, results: list[RankResult]) -> list[Check]:
    """Every check of the demo; the demo succeeds when all of them hold."""
    heat, published = results[0].heat, results[0].model
    copies = [result.model for result in results[1:]]
    same = sum(
        (copy.digest, copy.tensors, copy.nbytes)
        == (published.digest, published.tensors, published.nbytes)
        for copy in copies
    )
    return [
        (
            "heat equation equals the single-process NumPy reference bit for bit",
            heat.differing == 0,
            f"{heat.differing} of {job.side**2} cells differ after {job.steps} steps",
        ),
        (
            "every rank's state_dict has the BLAKE2b digest of the published one",
            same == len(copies),
            f"{same} of {len(copies)} copies, digest {published.digest}",
        ),
    ]


def print_report(job: Job, results: list[RankResult], console: Console) -> None:
    console.print(_transfers(job, results))
    if job.ranks > 1:
        console.print(_latencies(results))
    routes = [results[0].heat.halo_route, *(result.model.route for result in results[1:])]
    for route in dict.fromkeys(filter(None, routes)):
        console.print(f"route: {route}", markup=False, soft_wrap=True)
    console.print(
        "The demo is about queue pairs, so its Endpoints have p2p=0; without that, processes of one "
        "host copy by p2p.",
        soft_wrap=True,
    )
    for what, held, figures in checks(job, results):
        mark = "[bold green]held[/]  " if held else "[bold red]BROKEN[/]"
        console.print(f"{mark} {what} ({escape(figures)})", soft_wrap=True, highlight=False)


def _transfers(job: Job, results: list[RankResult]) -> Table:
    table = Table(title=f"{job.ranks} processes on {results[0].device}")
    for name in ("what", "by", "bytes", "seconds", "GB/s"):
        table.add_column(name, justify="left" if name in ("what", "by") else "right")

    def row(what: str, by: str, nbytes: int, seconds: float, measured: bool = True) -> None:
        rate = f"{nbytes / seconds / 1e9:.3g}" if measured and nbytes and seconds else ""
        table.add_row(what, by, decimal_bytes(nbytes), f"{seconds:.2f}", rate)

    first = results[0].heat
    writes = 2 * (job.ranks - 1) * job.steps
    grid = f"heat equation, {job.side} x {job.side} float32, {job.steps} steps"
    halos = first.halo_nbytes * writes
    row(grid, "write + notify", halos, max(r.heat.steps_s for r in results), measured=False)
    if job.ranks > 1:
        row(
            "final rows of the other ranks, to be compared", "read", first.read_nbytes, first.read_s
        )
    for rank, result in enumerate(results[1:], 1):
        model = result.model
        what = f"state_dict ({results[0].model.source}), {model.tensors} tensors, to rank {rank}"
        row(what, "read_many", model.nbytes, model.read_s)
    return table


def _latencies(results: list[RankResult]) -> Table:
    nbytes = results[0].heat.halo_nbytes
    table = Table(
        title=f"halo exchange, {decimal_bytes(nbytes)} to each neighbour and as much back"
    )
    table.add_column("time of")
    for name in ("p50", "p90", "p99"):
        table.add_column(name, justify="right")
    kinds = {
        "the exchange alone": [s for result in results for s in result.heat.bare_s],
        "waiting for it in a step, after the compute": [
            s for result in results for s in result.heat.exposed_s
        ],
    }
    for kind, samples in kinds.items():
        found = percentiles(samples)
        table.add_row(kind, *(human_seconds(found[name]) for name in ("p50", "p90", "p99")))
    return table

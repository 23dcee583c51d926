"""What waiting may cost. Each constant is a line of the issue that asked for this suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerohop.bench.placement import FREE, TOGETHER
from zerohop.bench.rows import Row
from zerohop.bench.targets import Verdict
from zerohop.bench.turns import OURS
from zerohop.bench.wait.plan import LATENCY
from zerohop.host import human_seconds

PIPE_RATIO = 1.5  # "on one core: p2p within 1.5 of a pipe ping-pong of two processes pinned there"
TCP_RATIO = 1.5  # "soft0 within 1.5 of a bare TCP one under the same policy"
MPI_RATIO = (
    1.5  # "barrier, exchange and collectives within 1.5 of Open MPI with mpi_yield_when_idle"
)
GLOO_RATIO = 1.0  # "and ahead of gloo"
ONE_CORE = (
    ("p2p", "pipe", PIPE_RATIO),
    ("host", "tcp yielding", TCP_RATIO),
)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    return [*_one_core(rows), *_jobs(rows)]


def _one_core(rows: Sequence[Row]) -> Iterator[Verdict]:
    p50 = {
        (row.impl, row.route if row.impl == OURS else ""): row.value
        for row in rows
        if (row.test, row.placement, row.metric) == (LATENCY, TOGETHER, "p50")
    }
    for route, impl, bound in ONE_CORE:
        ours, theirs = p50.get((OURS, route)), p50.get((impl, ""))
        if ours and theirs:
            said = "p2p" if route == "p2p" else "soft0"
            yield Verdict(
                f"8 B by {said} / {impl}, one core <= {bound:g}",
                f"{ours / theirs:.2f} ({human_seconds(ours)} to {human_seconds(theirs)})",
                ours <= bound * theirs,
            )


def _jobs(rows: Sequence[Row]) -> Iterator[Verdict]:
    """Of each call the job that is worst."""
    values = {
        (row.test, row.nbytes, row.impl): row.value
        for row in rows
        if row.test != LATENCY and row.placement == FREE and row.metric == "p50"
    }
    for impl, bound in (("mpi", MPI_RATIO), ("gloo", GLOO_RATIO)):
        worst: dict[tuple[str, int], tuple[float, str]] = {}
        for (test, nbytes, who), ours in values.items():
            theirs = values.get((test, nbytes, impl))
            if who == OURS and theirs:
                call, _, ranks = test.rpartition("_")
                found = ours / theirs, ranks
                worst[call, nbytes] = max(worst.get((call, nbytes), found), found)
        for (call, nbytes), (ratio, ranks) in worst.items():
            size = f" {nbytes} B" if nbytes else ""
            yield Verdict(
                f"{call}{size} / {impl}, free <= {bound:g}",
                f"{ratio:.2f} with {ranks} ranks",
                ratio <= bound,
            )

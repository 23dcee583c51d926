"""`zerohop bench wait`: how long two processes, and the ranks of a job, wait for each other, wherever they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console

from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.peer import PeerFailed
from zerohop.bench.peers import gloo, mpi
from zerohop.bench.peers.gloo_job import GlooJob
from zerohop.bench.placement import FREE, PLACEMENTS
from zerohop.bench.plan import FULL_SECONDS, MIB, Options
from zerohop.bench.turns import OURS, Contestant
from zerohop.bench.wait.ours import WorldJob
from zerohop.bench.wait.plan import BOUND_S, JOBS, LATENCY, job_tests, steps
from zerohop.bench.wait.system import Pipes, Tcp
from zerohop.bench.wait.tables import parts
from zerohop.bench.worker import BY_DEVICE, Pair

SUITE = "wait"
DRIVER = ("python",)
PING_PONG = {LATENCY: LATENCY}
YIELDING = {LATENCY: "yielding_latency"}
MPI_JOB = ("zerohop.bench.peers.mpi_job",)
YIELDS = {"OMPI_MCA_mpi_yield_when_idle": "1"}
MPI_SETTINGS = " ".join((*(f"{name}={value}" for name, value in YIELDS.items()), mpi.SETTINGS))
QUICK_SECONDS = 0.1  # a time slice or two of each rank: several of a job share a core
SOFT = "soft0"


def run(options: Options, console: Console) -> bool:
    """The ping-pong in every placement; the jobs where the system puts them, unless all are asked for."""
    return run_bench(
        lambda one: make(one, jobs=bool(options.placements) or one.placement == FREE),
        replace(options, placements=options.placements or PLACEMENTS),
        console,
    )


def make(options: Options, jobs: bool) -> Bench:
    entrants = pairs(options)
    if jobs:
        for ranks in JOBS:
            entrants += jobs_of(options, ranks)
    seconds = QUICK_SECONDS if options.quick else FULL_SECONDS
    return Bench(*(SUITE, steps(options, jobs), entrants, parts, seconds), compares_placements=True)


def pairs(options: Options) -> list[Entrant]:
    placement = options.placement
    p2p = Contestant(OURS, 2, BOUND_S, Pair, options.device, MIB, 1, placement=placement)
    soft = Contestant(OURS, 2, BOUND_S, Pair, SOFT, MIB, 0, placement=placement)
    found = [
        Entrant(OURS, p2p, DRIVER, tests=PING_PONG, check=_check_p2p, label=f"{OURS}, p2p"),
        Entrant(
            OURS,
            soft,
            DRIVER,
            "soft0",
            tests=PING_PONG,
            needed=True,
            settings=BY_DEVICE,
            label=f"{OURS}, soft0",
        ),
    ]
    if "pipe" in options.peers:
        pipes = Contestant("pipe", 2, BOUND_S, Pipes, placement=placement)
        found.append(Entrant("pipe", pipes, DRIVER, tests=PING_PONG))
    if "tcp" in options.peers:
        tcp = Contestant("tcp", 2, BOUND_S, Tcp, placement=placement)
        found.append(Entrant("tcp", tcp, DRIVER, tests=PING_PONG))
        found.append(Entrant("tcp yielding", tcp, DRIVER, tests=YIELDING))
    return found + theirs(options, 2, PING_PONG)


def jobs_of(options: Options, ranks: int) -> list[Entrant]:
    world = Contestant(OURS, ranks, BOUND_S, WorldJob, options.device, placement=options.placement)
    tests = job_tests(ranks)
    label = f"{OURS}, {ranks} ranks"
    return [
        Entrant(OURS, world, DRIVER, tests=tests, label=label),
        *theirs(options, ranks, tests, f", {ranks} ranks"),
    ]


def theirs(
    options: Options, ranks: int, tests: Mapping[str, str], label: str = ""
) -> list[Entrant]:
    placement = options.placement
    found = []
    if "mpi" in options.peers:
        player = mpi.Mpi(BOUND_S, MPI_JOB, ranks, placement, YIELDS)
        found.append(
            Entrant("mpi", player, DRIVER, tests=tests, settings=MPI_SETTINGS, label=f"mpi{label}")
        )
    if "gloo" in options.peers:
        job = Contestant("gloo", ranks, BOUND_S, GlooJob, placement=placement)
        found.append(
            Entrant("gloo", job, DRIVER, tests=tests, settings=gloo.SETTINGS, label=f"gloo{label}")
        )
    return found


def _check_p2p(facts: Mapping[str, Any]) -> None:
    if facts["route"] != "p2p":
        raise PeerFailed(f"the route is {facts['route']}, not p2p: {facts['reason']}")

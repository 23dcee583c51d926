"""`zerohop bench soft`: verbs between two processes of this machine, on soft0 unless another device is named."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.idle import Idle
from zerohop.bench.peers import iperf3, ucx
from zerohop.bench.plan import BLOCK_TESTS, DRIVERS, SIZED_TESTS, Options, Plan, Step, make_plan
from zerohop.bench.report import Part, View
from zerohop.bench.rows import Figures, Row
from zerohop.bench.targets import verdicts
from zerohop.bench.turns import OURS, Contestant
from zerohop.bench.worker import BY_DEVICE, Pair
from zerohop.host import available_memory

SUITE = "soft"
BOUND_S = 120.0
TCP_TESTS = {"latency": "tcp_latency", "write": "tcp_stream"}  # ours: those of a plain socket

VIEWS = (
    View("latency", "write + notify, half round trip", "p50"),
    *(View(test, f"{test} bandwidth") for test in ("write", "read", "send", *BLOCK_TESTS)),
)


def run(options: Options, console: Console) -> bool:
    return run_bench(make, options, console)


def make(options: Options) -> Bench:
    plan = make_plan(options, available_memory())
    placement = options.placement
    arguments = options.device, plan.arena_nbytes
    ours = Contestant(OURS, 2, BOUND_S, Pair, *arguments, placement=placement)
    idle = Contestant(OURS, 2, BOUND_S, Idle, options.device, placement=placement, anew=True)
    sized = (*SIZED_TESTS, *BLOCK_TESTS)
    tests = {test: test for test in sized}
    entrants = [Entrant(OURS, ours, DRIVERS, tests=tests, needed=True, settings=BY_DEVICE)]
    if "ucx" in options.peers:
        player = ucx.player(ucx.TCP, plan.ucx_ranks, placement=placement)
        entrants.append(Entrant("ucx", player, route="tcp", settings=ucx.TCP.settings))
    if "tcp" in options.peers:
        entrants.append(Entrant("tcp", ours, route="tcp", tests=TCP_TESTS))
    if "iperf3" in options.peers:
        entrants.append(Entrant("iperf3", iperf3.player(placement), route="tcp"))
    weights = {f"idle_peers_{count}": f"idle_peers_{count}" for count in plan.idle_peers}
    entrants.append(Entrant(OURS, idle, tests=weights, label="idle peers"))
    return Bench(SUITE, steps(plan), entrants, told, plan.seconds, plan.left_out)


def steps(plan: Plan) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED_TESTS]
    found += [
        plan.step(test, n * block) for test, block in BLOCK_TESTS.items() for n in plan.blocks
    ]
    return found + [Step(f"idle_peers_{count}", 0, times=count) for count in plan.idle_peers]


def told(rows: Sequence[Row]) -> Sequence[Part]:
    figures = Figures(rows)
    return (Part("", figures, VIEWS, verdicts(figures)),)

"""`zerohop bench verbs`: who posts what, on which device."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

import zerohop as zh
from zerohop import verbs
from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.peer import PeerFailed
from zerohop.bench.peers import perftest
from zerohop.bench.plan import Options, plan_of
from zerohop.bench.report import Part
from zerohop.bench.rows import Figures, Row
from zerohop.bench.turns import OURS, Contestant
from zerohop.bench.verbs.end import End
from zerohop.bench.verbs.plan import ATOMIC_NBYTES, QUICK_SIZES, SHEETS, VIEWS, steps
from zerohop.host import available_memory

SUITE = "verbs"
BOUND_S = 120.0
SHARE_OF_FREE = 0.1  # of memory, for each of the two arenas' halves


def run(options: Options, console: Console) -> bool:
    return run_bench(make, options, console)


def make(options: Options) -> Bench:
    plan = plan_of(options, int(available_memory() * SHARE_OF_FREE), QUICK_SIZES)
    device = choose_device(options.device)
    placement = options.placement
    nbytes = 2 * max(*plan.sizes, ATOMIC_NBYTES)
    ours = Contestant(OURS, 2, BOUND_S, End, device, nbytes, placement=placement)
    found = [Entrant(OURS, ours, ("python",), needed=True)]
    if "raw" in options.peers:
        found.append(Entrant("raw", ours, ("cpp",), route="verbs"))
    if "perftest" in options.peers:
        found.append(Entrant("perftest", perftest.player(device, placement), route="verbs"))
    return Bench(SUITE, steps(plan), found, told, plan.seconds, plan.left_out)


def choose_device(name: str | None) -> str:
    """The one that is named, if it can be opened, or else that of an Endpoint. Raises PeerFailed."""
    try:
        if name is not None:
            return verbs.Device(name).name
        with zh.Endpoint() as endpoint:
            return endpoint.device.split(",")[0]
    except zh.Error as error:
        raise PeerFailed(str(error)) from None


def told(rows: Sequence[Row]) -> Sequence[Part]:
    return (Part("", Figures(rows), VIEWS, [], SHEETS),)

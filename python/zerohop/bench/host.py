"""`zerohop bench host`: host arrays of two processes, by every way that zerohop has between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.p2p.targets import host_verdicts
from zerohop.bench.peer import PeerFailed
from zerohop.bench.peers import gloo, mpi, ucx
from zerohop.bench.peers.nixl import Nixl
from zerohop.bench.peers.torch_shared import TorchShared
from zerohop.bench.plan import DRIVERS, LARGE_NBYTES, Options, Plan, Step, make_plan
from zerohop.bench.report import Part, View
from zerohop.bench.rows import Figures, Row
from zerohop.bench.turns import OURS, Contestant, Player
from zerohop.bench.worker import BY_DEVICE, Pair
from zerohop.host import available_memory

SUITE = "host"
BOUND_S = 120.0  # for any one answer; of the first, the import of PyTorch included
MAPPED, PLAIN, DEVICE = "empty", "numpy", "device"
CHECKED, CHECKED_DEVICE = "checked", "checked device"
PARTS = {
    MAPPED: "p2p, memory of Endpoint.empty()",
    PLAIN: "p2p, plain NumPy memory",
    DEVICE: "by the device, as between hosts",
    CHECKED: "p2p, memory of Endpoint.empty(), integrity=1",
    CHECKED_DEVICE: "by the device, integrity=1",
}
ANY = "host"  # memory of a peer that has one way for all: it stands in each part
MPI_RANK = "zerohop.bench.peers.mpi_rank"
PEERS = ("ucx", "mpi", "nixl", "gloo", "torch")
# Who polls the bytes themselves does not wait for the check, and has the other one change them in it.
CHECKED_TESTS = ("latency", "send_latency", "write", "read", "send")
LATENCIES = ("write_latency", "latency", "send_latency")
TESTS = (*LATENCIES, "write", "read", "send")
UCX_WAYS = {MAPPED: ucx.POSIX, PLAIN: ucx.CMA, DEVICE: ucx.TCP}  # what UCX does in their place
UCX_TESTS = {"write_latency": "latency", "write": "write", "read": "read", "send": "send"}
VIEWS = (
    View("write_latency", "write, half round trip, its last byte polled", "p50"),
    View("latency", "write + notify, half round trip", "p50"),
    View("send_latency", "send + recv, half round trip", "p50"),
    View("write", "write bandwidth"),
    View("read", "read bandwidth"),
    View("send", "send + recv bandwidth"),
)
MAKERS: Mapping[str, Callable[..., Any]] = {"nixl": Nixl, "gloo": gloo.Gloo, "torch": TorchShared}
SETTINGS = {"mpi": mpi.SETTINGS, "gloo": gloo.SETTINGS}


def run(options: Options, console: Console) -> bool:
    return run_bench(make, options, console)


def make(options: Options) -> Bench:
    arenas = len(PARTS) + len(options.peers)
    plan = make_plan(options, available_memory() // arenas)
    nbytes = 2 * max(plan.sizes)
    found = [_ours(part, options, nbytes) for part in PARTS]
    for name in PEERS:
        if name in options.peers:
            found += _theirs(name, options.placement, plan, nbytes)
    return Bench(SUITE, steps(plan), found, told, plan.seconds, plan.left_out)


def steps(plan: Plan) -> list[Step]:
    """A ping-pong of large messages would tell the bandwidth once more."""
    return [
        plan.step(test, nbytes)
        for nbytes in plan.sizes
        for test in TESTS
        if nbytes <= LARGE_NBYTES or test not in LATENCIES
    ]


def _ours(part: str, options: Options, nbytes: int) -> Entrant:
    memory = PLAIN if part == PLAIN else MAPPED
    by_device, checked = part in (DEVICE, CHECKED_DEVICE), part in (CHECKED, CHECKED_DEVICE)
    arguments = options.device, nbytes, int(not by_device), memory, int(checked)
    player = Contestant(OURS, 2, BOUND_S, Pair, *arguments, placement=options.placement)
    check = None if by_device else _check_p2p
    label = f"{OURS}, {PARTS[part]}"
    tests = {test: test for test in CHECKED_TESTS} if checked else None
    return Entrant(
        *(OURS, player, DRIVERS, part),
        tests=tests,
        needed=part == DEVICE,
        check=check,
        settings=BY_DEVICE if by_device else "",
        label=label,
    )


def _check_p2p(facts: Mapping[str, Any]) -> None:
    if facts["route"] != "p2p":
        raise PeerFailed(f"the route is {facts['route']}, not p2p: {facts['reason']}")


def _theirs(name: str, placement: str, plan: Plan, nbytes: int) -> list[Entrant]:
    if name == "ucx":
        return [_ucx(part, placement, plan) for part in UCX_WAYS]
    player: Player
    if name == "mpi":
        player = mpi.Mpi(BOUND_S, (MPI_RANK, str(nbytes)), placement=placement)
    else:
        player = Contestant(name, 2, BOUND_S, MAKERS[name], nbytes, placement=placement)
    return [Entrant(name, player, ("python",), ANY, settings=SETTINGS.get(name, ""))]


def _ucx(part: str, placement: str, plan: Plan) -> Entrant:
    way = UCX_WAYS[part]
    player = ucx.player(way, plan.ucx_ranks, UCX_TESTS, placement)
    label = f"ucx {way.name}"
    return Entrant("ucx", player, memory=part, route=way.name, settings=way.settings, label=label)


def told(rows: Sequence[Row]) -> Sequence[Part]:
    parts = []
    for part, label in PARTS.items():
        if not any(row.memory == part and row.impl == OURS for row in rows):
            continue
        figures = Figures(row for row in rows if row.memory in (part, ANY))
        judge = partial(host_verdicts, figures)
        judged = judge(mapped=part == MAPPED) if part in (MAPPED, PLAIN) else []
        parts.append(Part(label, figures, VIEWS, judged))
    return parts

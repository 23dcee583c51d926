"""`zerohop bench host`: host arrays of two processes, on every route of zerohop between them."""

from __future__ import annotations

from dataclasses import replace

from zerohop.bench.pair import entry_of
from zerohop.bench.peers import mpi, torch, ucx
from zerohop.bench.peers.nixl import Nixl
from zerohop.bench.plan import DRIVERS, KIB, LARGE_NBYTES, Options, Plan, Step, make_plan
from zerohop.bench.runner import Entry, Suite
from zerohop.bench.tables import over_sizes
from zerohop.bench.targets import Of, Target, only, up_from
from zerohop.bench.workers import Workers
from zerohop.host import available_memory

SHARE_OF_FREE = 0.2  # of free memory, for the arenas of each of two workers, of all contenders
MAPPED, PLAIN, DEVICE = "empty", "numpy", "device"
CHECKED, CHECKED_DEVICE = "checked", "checked device"
PARTS = {
    MAPPED: "p2p, memory of Endpoint.empty()",
    PLAIN: "p2p, plain NumPy memory",
    DEVICE: "by the device, as between hosts",
    CHECKED: "p2p, memory of Endpoint.empty(), integrity=1",
    CHECKED_DEVICE: "by the device, integrity=1",
}
ANY = "host"  # memory of a peer with a single way: it appears in each part
# Tests that poll the bytes do not wait for the check, so the other side would change the bytes during it.
CHECKED_TESTS = ("latency", "send_latency", "write", "read", "send")
LATENCIES = ("write_latency", "latency", "send_latency")
TESTS = (*LATENCIES, "write", "read", "send")
UCX_WAYS = {MAPPED: ucx.POSIX, PLAIN: ucx.CMA, DEVICE: ucx.TCP}  # UCX's transports in their place
UCX_TESTS = {"write_latency": "latency", "write": "write", "read": "read", "send": "send"}
TABLES = (
    over_sizes("write_latency", "write, half round trip, its last byte polled", "p50"),
    over_sizes("latency", "write + notify, half round trip", "p50"),
    over_sizes("send_latency", "send + recv, half round trip", "p50"),
    over_sizes("write", "write bandwidth"),
    over_sizes("read", "read bandwidth"),
    over_sizes("send", "send + recv bandwidth"),
)
AGAINST_UCX = (
    Target(Of("write", driver="cpp"), 0.95, Of("write", impl="ucx"), up_from(64 * KIB)),
    Target(Of("read", driver="cpp"), 0.95, Of("read", impl="ucx"), up_from(64 * KIB)),
    Target(
        Of("write_latency", "p50", driver="cpp"), 3.0, Of("write_latency", "p50", "ucx"), only(8)
    ),
)
# Only for memory that both processes map: for other memory each write is a system call.
NOTIFICATIONS = (
    Target(Of("latency", "p50", driver="cpp"), 0.5e-6, sizes=only(8)),
    Target(Of("latency", "p50", driver="python"), 3e-6, sizes=only(8)),
)
TARGETS = {MAPPED: (*AGAINST_UCX, *NOTIFICATIONS), PLAIN: AGAINST_UCX}


def make(options: Options) -> Suite:
    arenas = len(PARTS) + len(options.peers)
    plan = make_plan(options, available_memory() * SHARE_OF_FREE / arenas)
    nbytes = 2 * max(plan.sizes)
    entries = [_ours(part, options, nbytes) for part in PARTS]
    peers = {
        "mpi": (mpi.contender(2, nbytes), mpi.SETTINGS),
        "nixl": (Workers("nixl", 2, Nixl, nbytes), ""),
        "gloo": (Workers("gloo", 2, torch.Gloo, nbytes), torch.SETTINGS),
        "torch": (Workers("torch", 2, torch.TorchShared, nbytes), ""),
    }
    if "ucx" in options.peers:
        entries += [_ucx(part) for part in UCX_WAYS]
    for name, (contender, settings) in peers.items():
        if name in options.peers:
            entries.append(Entry(name, contender, memory=ANY, settings=settings))
    return Suite(
        "host",
        steps(plan),
        entries,
        TABLES,
        TARGETS,
        PARTS,
        ANY,
        plan,
    )


def steps(plan: Plan) -> list[Step]:
    """Without a ping-pong of large messages, which would only measure the bandwidth again."""
    return [
        plan.step(test, nbytes)
        for nbytes in plan.sizes
        for test in TESTS
        if nbytes <= LARGE_NBYTES or test not in LATENCIES
    ]


def _ours(part: str, options: Options, nbytes: int) -> Entry:
    checked = part in (CHECKED, CHECKED_DEVICE)
    settings = {
        "p2p": int(part not in (DEVICE, CHECKED_DEVICE)),
        "memory": PLAIN if part == PLAIN else MAPPED,
        "integrity": int(checked),
    }
    entry = entry_of(part, PARTS[part], options.device, nbytes, DRIVERS, **settings)
    tests = {test: test for test in CHECKED_TESTS} if checked else None
    return replace(entry, tests=tests, needed=part == DEVICE)


def _ucx(part: str) -> Entry:
    way = UCX_WAYS[part]
    contender, label = ucx.contender(way, UCX_TESTS), f"ucx {way.name}"
    return Entry("ucx", contender, ("cpp",), part, way.name, settings=way.settings, label=label)

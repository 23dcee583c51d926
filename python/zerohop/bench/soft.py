"""`zerohop bench soft`: verbs between two processes of this machine, on soft0 unless another device is named."""

from __future__ import annotations

from zerohop.bench.idle import Idle
from zerohop.bench.pair import BLOCK_TESTS, BY_DEVICE, Pair
from zerohop.bench.peers import iperf3, ucx
from zerohop.bench.plan import DRIVERS, KIB, MIB, Options, Plan, Step, make_plan
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Entry, Suite
from zerohop.bench.tables import over_sizes
from zerohop.bench.targets import Of, Target, only, up_from
from zerohop.bench.workers import Workers
from zerohop.host import available_memory

SIZED_TESTS = ("latency", "write", "read", "send")
FULL_BLOCKS, QUICK_BLOCKS = (16, 256, 4096), (256,)  # of a write_many
FULL_IDLE, QUICK_IDLE = (100, 1000), (100,)  # Peers
SHARE_OF_FREE = 0.2  # of free memory, for an arena: two workers hold one each; the peers' processes need as much
TCP_TESTS = {"latency": "tcp_latency", "write": "tcp_stream"}  # our test: that of a plain socket
IDLE_TESTS = {f"idle_peers_{count}": f"idle_peers_{count}" for count in FULL_IDLE}

TABLES = (
    over_sizes("latency", "write + notify, half round trip", "p50"),
    *(over_sizes(test, f"{test} bandwidth") for test in ("write", "read", "send", *BLOCK_TESTS)),
)


def _beside(test: str, impl: str, metric: str, bound: float, sizes: range) -> Target:
    return Target(Of(test, metric, driver="cpp"), bound, Of(test, metric, impl), sizes)


TARGETS = (
    *(_beside(test, "ucx", "bandwidth", 1.0, up_from(64 * KIB)) for test in SIZED_TESTS[1:]),
    _beside("write", "iperf3", "bandwidth", 0.9, up_from(MIB)),
    _beside("latency", "ucx", "p50", 1.5, only(8)),
    _beside("latency", "tcp", "p50", 1.25, only(8)),
    *(Target(Of(test, "rss_per_peer"), 64 * KIB) for test in IDLE_TESTS),  # but for its queues
)


def make(options: Options) -> Suite:
    plan = make_plan(options, available_memory() * SHARE_OF_FREE)
    blocks = QUICK_BLOCKS if options.quick else FULL_BLOCKS
    idle = QUICK_IDLE if options.quick else FULL_IDLE
    arena_nbytes = max(*plan.sizes, max(BLOCK_TESTS.values()) * max(blocks))
    ours = Workers(OURS, 2, Pair, options.device, arena_nbytes)
    tests = {test: test for test in (*SIZED_TESTS, *BLOCK_TESTS)}
    entries = [Entry(OURS, ours, DRIVERS, tests=tests, needed=True, settings=BY_DEVICE)]
    if "ucx" in options.peers:
        player = ucx.contender(ucx.TCP)
        entries.append(Entry("ucx", player, ("cpp",), route="tcp", settings=ucx.TCP.settings))
    if "tcp" in options.peers:
        entries.append(Entry("tcp", ours, ("cpp",), route="tcp", tests=TCP_TESTS))
    if "iperf3" in options.peers:
        entries.append(Entry("iperf3", iperf3.contender(), ("cpp",), route="tcp"))
    weighed = Workers(OURS, 2, Idle, options.device, anew=True)
    entries.append(Entry(OURS, weighed, ("cpp",), tests=IDLE_TESTS, label="idle peers"))
    found = steps(plan, blocks, idle)
    return Suite(
        "soft",
        found,
        entries,
        TABLES,
        {"": TARGETS},
        plan=plan,
    )


def steps(plan: Plan, blocks: tuple[int, ...], idle: tuple[int, ...]) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED_TESTS]
    found += [plan.step(test, n * block) for test, block in BLOCK_TESTS.items() for n in blocks]
    return found + [Step(f"idle_peers_{count}", 0, times=count) for count in idle]

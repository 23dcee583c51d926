"""`zerohop bench python`: what calls cost from Python, beside the same from C++, by p2p and by the device."""

from __future__ import annotations

import operator

from zerohop.bench.calls import CALLS, NBYTES
from zerohop.bench.pair import BY_DEVICE, Pair
from zerohop.bench.plan import DRIVERS, KIB, Options, Plan, Step, make_plan
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Entry, Suite
from zerohop.bench.tables import listed, over_sizes
from zerohop.bench.targets import Of, Target
from zerohop.bench.workers import Workers
from zerohop.host import available_memory

QUICK_SIZES = (8, 4 * KIB)
FULL_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB)  # beyond, bytes cost more than calls
SHARE_OF_FREE = 0.05  # of memory, for half an arena
PARTS = {"p2p": "by p2p: the CPU copies in the call", "device": "by the device"}
LATENCIES = ("latency", "send_latency")
SAID = {
    "post_write": "peer.write, not waited for",
    "write_and_wait": "peer.write(...).wait()",
    "write_and_await": "await peer.write(...)",
    "read_and_wait": "peer.read(...).wait()",
    "notify": "peer.notify, not waited for",
    "wait_notify": "ep.wait_notify of what is there",
    "register_again": "ep.register of what is registered",
}
TABLES = (
    over_sizes("latency", "write + notify and wait_notify, half round trip", "p50"),
    over_sizes("send_latency", "send + recv, half round trip", "p50"),
    listed("a call", "per_call", {(test, NBYTES): said for test, said in SAID.items()}),
)
POSTING = Target(
    "posting a write from Python - from C++",
    1e-6,
    Of("post_write", "per_call", driver="python"),
    Of("post_write", "per_call", driver="cpp"),
    operator.sub,
)


def make(options: Options) -> Suite:
    plan = make_plan(options, available_memory() * SHARE_OF_FREE, QUICK_SIZES, FULL_SIZES)
    entries = [_ours(part, options, 2 * max(plan.sizes)) for part in PARTS]
    return Suite(
        "python",
        steps(plan),
        entries,
        TABLES,
        dict.fromkeys(PARTS, (POSTING,)),
        PARTS,
        seconds=plan.seconds,
        left_out=plan.left_out,
    )


def steps(plan: Plan) -> list[Step]:
    calls = [plan.step(test, NBYTES) for test in CALLS]
    return calls + [plan.step(test, nbytes) for test in LATENCIES for nbytes in plan.sizes]


def _ours(part: str, options: Options, nbytes: int) -> Entry:
    by_device = part == "device"
    return Entry(
        OURS,
        Workers(OURS, 2, Pair, options.device, nbytes, int(not by_device)),
        tuple(reversed(DRIVERS)),
        part,
        needed=by_device,
        must_go="" if by_device else "p2p",
        settings=BY_DEVICE if by_device else "",
        label=f"{OURS}, {PARTS[part]}",
    )

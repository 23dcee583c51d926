"""`zerohop bench python`: the cost of calls from Python, next to the same from C++, by p2p and by the device."""

from __future__ import annotations

import operator
from dataclasses import replace

from zerohop.bench.calls import CALLS, NBYTES
from zerohop.bench.pair import entry_of
from zerohop.bench.plan import DRIVERS, KIB, Options, Plan, Step, make_plan
from zerohop.bench.runner import Suite
from zerohop.bench.tables import listed, over_sizes
from zerohop.bench.targets import Of, Target
from zerohop.host import available_memory

QUICK_SIZES = (8, 4 * KIB)
FULL_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB)  # above this, bytes cost more than calls
SHARE_OF_FREE = 0.05  # of free memory, for half an arena
PARTS = {"p2p": "by p2p: the CPU copies in the call", "device": "by the device"}
LATENCIES = ("latency", "send_latency")
SAID = {
    "post_write": "peer.write, not waited for",
    "write_and_wait": "peer.write(...).wait()",
    "write_and_await": "await peer.write(...)",
    "read_and_wait": "peer.read(...).wait()",
    "notify": "peer.notify, not waited for",
    "wait_notify": "ep.wait_notify, already notified",
    "register_again": "ep.register, already registered",
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
    nbytes, drivers = 2 * max(plan.sizes), DRIVERS[::-1]
    entries = [
        replace(
            entry_of(part, said, options.device, nbytes, drivers, p2p=int(part == "p2p")),
            needed=part == "device",
        )
        for part, said in PARTS.items()
    ]
    return Suite(
        "python",
        steps(plan),
        entries,
        TABLES,
        dict.fromkeys(PARTS, (POSTING,)),
        PARTS,
        plan=plan,
    )


def steps(plan: Plan) -> list[Step]:
    calls = [plan.step(test, NBYTES) for test in CALLS]
    return calls + [plan.step(test, nbytes) for test in LATENCIES for nbytes in plan.sizes]

"""`zerohop bench python`: the cost of calls from Python, next to the same from C++, by p2p and by the device."""

from __future__ import annotations

import math
import operator
from dataclasses import replace

from zerohop.bench.calls import CALLS, NBYTES
from zerohop.bench.pair import entry_of
from zerohop.bench.plan import DRIVERS, KIB, Options, make_plan
from zerohop.bench.runner import Suite
from zerohop.bench.tables import listed
from zerohop.bench.targets import Of, Target

PARTS = {"p2p": "by p2p: the CPU copies in the call", "device": "by the device"}
SAID = {
    "post_write": "peer.write, not waited for",
    "write_and_wait": "peer.write(...).wait()",
    "write_and_await": "await peer.write(...)",
    "read_and_wait": "peer.read(...).wait()",
    "notify": "peer.notify, not waited for",
    "wait_notify": "ep.wait_notify, already notified",
}
TABLE = listed("a call", "per_call", {(test, NBYTES): said for test, said in SAID.items()})
POSTING = Target(
    Of("post_write", "per_call", driver="python"),
    1e-6,
    Of("post_write", "per_call", driver="cpp"),
    by=operator.sub,
)


def make(options: Options) -> Suite:
    plan = make_plan(options, math.inf)
    entries = [
        replace(
            entry_of(part, said, options.device, KIB, DRIVERS[::-1], p2p=int(part == "p2p")),
            needed=part == "device",
        )
        for part, said in PARTS.items()
    ]
    targets = dict.fromkeys(PARTS, (POSTING,))
    steps = [plan.step(test, NBYTES) for test in CALLS]
    return Suite("python", steps, entries, (TABLE,), targets, PARTS, plan=plan)

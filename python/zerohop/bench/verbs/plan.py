"""What `zerohop bench verbs` measures: the tests, and what each of them posts."""

from __future__ import annotations

from dataclasses import dataclass

from zerohop.bench.plan import KIB, MIB, Plan, Step
from zerohop.bench.report import Sheet, View

QUEUE_PAIRS = 4
SEND_DEPTH, RECEIVE_DEPTH = 128, 256  # of each queue pair; bandwidth loops post fewer sends
INLINE_NBYTES = 64
ATOMIC_NBYTES = 8
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB)
PING_PONG = "ping_pong_latency"


@dataclass(frozen=True)
class Test:
    """What is posted, of `operation`; on so many queue pairs by turns."""

    operation: str
    inline: bool = False
    queue_pairs: int = 1


SIZED = {
    PING_PONG: Test("write"),
    "write_latency": Test("write"),
    "read_latency": Test("read"),
    "send_latency": Test("send"),
    "write": Test("write"),
    f"write_{QUEUE_PAIRS}_qp": Test("write", queue_pairs=QUEUE_PAIRS),
    "read": Test("read"),
    "send": Test("send"),
}
INLINE = {"write_inline_latency": Test("write", inline=True)}
ATOMIC = {
    "fetch_add_latency": Test("fetch_add"),
    "compare_swap_latency": Test("compare_swap"),
    "fetch_add_rate": Test("fetch_add"),
}
TESTS = {**SIZED, **INLINE, **ATOMIC}
VIEWS = (
    View(PING_PONG, "write, half round trip, its last byte polled", "p50"),
    View("write_latency", "write, from post to completion", "p50"),
    View("read_latency", "read, from post to completion", "p50"),
    View("send_latency", "send, from post to completion", "p50"),
    View("write", "write bandwidth"),
    View(f"write_{QUEUE_PAIRS}_qp", f"write bandwidth, {QUEUE_PAIRS} queue pairs"),
    View("read", "read bandwidth"),
    View("send", "send bandwidth"),
)
SHEETS = (
    Sheet(
        "from post to completion",
        "p50",
        (
            ("write", "write_latency", 8),
            ("write, inline", "write_inline_latency", 8),
            ("fetch_add", "fetch_add_latency", ATOMIC_NBYTES),
            ("compare_swap", "compare_swap_latency", ATOMIC_NBYTES),
        ),
    ),
    Sheet("atomics under way at once", "rate", (("fetch_add", "fetch_add_rate", ATOMIC_NBYTES),)),
)


def steps(plan: Plan) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED]
    small = [nbytes for nbytes in plan.sizes if nbytes <= INLINE_NBYTES]
    found += [plan.step(test, nbytes) for nbytes in small for test in INLINE]
    return found + [plan.step(test, ATOMIC_NBYTES) for test in ATOMIC]

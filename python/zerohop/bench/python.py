"""`zerohop bench python`: what calls cost from Python, beside the same from C++, by p2p and by the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.overhead import CALLS, NBYTES
from zerohop.bench.peer import PeerFailed
from zerohop.bench.plan import DRIVERS, KIB, Options, Plan, Step, plan_of
from zerohop.bench.report import Part, Sheet, View
from zerohop.bench.rows import Figures, Row
from zerohop.bench.targets import Verdict
from zerohop.bench.turns import OURS, Contestant
from zerohop.bench.worker import BY_DEVICE, Pair
from zerohop.host import available_memory, human_seconds

SUITE = "python"
BOUND_S = 120.0
QUICK_SIZES = (8, 4 * KIB)
FULL_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB)  # beyond, bytes cost more than calls
SHARE_OF_FREE = 0.05  # of memory, for half an arena
PARTS = {"p2p": "by p2p: the CPU copies in the call", "device": "by the device"}
LATENCIES = ("latency", "send_latency")
POST_S = 1e-6  # "posting a write costs at most 1 us more than from C++"
VIEWS = (
    View("latency", "write + notify and wait_notify, half round trip", "p50"),
    View("send_latency", "send + recv, half round trip", "p50"),
)
SAID = {
    "post_write": "peer.write, not waited for",
    "write_and_wait": "peer.write(...).wait()",
    "write_and_await": "await peer.write(...)",
    "read_and_wait": "peer.read(...).wait()",
    "notify": "peer.notify, not waited for",
    "wait_notify": "ep.wait_notify of what is there",
    "register_again": "ep.register of what is registered",
}
SHEETS = (Sheet("a call", "per_call", tuple((said, test, NBYTES) for test, said in SAID.items())),)


def run(options: Options, console: Console) -> bool:
    return run_bench(make, options, console)


def make(options: Options) -> Bench:
    sizes = options.sizes or (QUICK_SIZES if options.quick else FULL_SIZES)
    plan = plan_of(replace(options, sizes=sizes), int(available_memory() * SHARE_OF_FREE), ())
    found = [_ours(part, options, 2 * max(plan.sizes)) for part in PARTS]
    return Bench(SUITE, steps(plan), found, told, plan.seconds, plan.left_out)


def steps(plan: Plan) -> list[Step]:
    calls = [plan.step(test, NBYTES) for test in CALLS]
    return calls + [plan.step(test, nbytes) for test in LATENCIES for nbytes in plan.sizes]


def _ours(part: str, options: Options, nbytes: int) -> Entrant:
    arguments = options.device, nbytes, int(part == "p2p")
    player = Contestant(OURS, 2, BOUND_S, Pair, *arguments, placement=options.placement)
    check = _check_p2p if part == "p2p" else None
    label = f"{OURS}, {PARTS[part]}"
    by_device = part == "device"
    return Entrant(
        *(OURS, player, DRIVERS, part),
        needed=by_device,
        check=check,
        settings=BY_DEVICE if by_device else "",
        label=label,
    )


def _check_p2p(facts: Mapping[str, Any]) -> None:
    if facts["route"] != "p2p":
        raise PeerFailed(f"the route is {facts['route']}, not p2p: {facts['reason']}")


def told(rows: Sequence[Row]) -> Sequence[Part]:
    parts = []
    for part, label in PARTS.items():
        figures = Figures(row for row in rows if row.memory == part)
        parts.append(Part(label, figures, VIEWS, verdicts(figures), SHEETS))
    return parts


def verdicts(figures: Figures) -> list[Verdict]:
    python = figures.get("post_write", "per_call", NBYTES, driver="python")
    cpp = figures.get("post_write", "per_call", NBYTES)
    if python is None or cpp is None:
        return []
    return [
        Verdict(
            f"posting a write from Python - from C++ <= {human_seconds(POST_S)}",
            f"{(python - cpp) * 1e6:.2f} us ({human_seconds(python)} - {human_seconds(cpp)})",
            python - cpp <= POST_S,
        )
    ]

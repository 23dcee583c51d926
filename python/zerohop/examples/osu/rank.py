"""What each rank does: every size in its turn, checked before it is timed and behind that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerohop.examples.osu.loops import LOOPS
from zerohop.examples.osu.pair import Pair
from zerohop.examples.osu.plan import WINDOW, Plan

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.world import World

__all__ = ["Finding", "Spec", "work"]

_LAP = 20  # turns between two looks at how far it is, which are not timed
_CHECKED = 3  # turns with data of their own, before it counts: they warm up, too


@dataclass(frozen=True)
class Spec:
    plan: Plan
    devices: tuple[str, ...]


@dataclass
class Finding:
    """figures: by size, the latency in seconds or the bandwidth in bytes per second."""

    device: str
    route: str
    figures: dict[int, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def work(world: World, spec: Spec, report: Report) -> Finding:
    """What this rank found; rank 0 has all of it."""
    device = spec.devices[world.local_rank % len(spec.devices)]
    with Pair(world, spec.plan, device) as pair:
        finding = Finding(device, pair.route)
        for nbytes in spec.plan.sizes:
            measure(pair, spec.plan, nbytes, finding, report)
        world.barrier()
    return finding


def measure(pair: Pair, plan: Plan, nbytes: int, finding: Finding, report: Report) -> None:
    found = [checked(pair, plan, nbytes, turn, 1, report)[1] for turn in range(_CHECKED)]
    times = plan.times(nbytes)
    seconds, wrong = checked(pair, plan, nbytes, _CHECKED, times, report)
    found.append(wrong)
    found.append(pair.tell(next(filter(None, found), "")))
    finding.wrong += filter(None, found)
    each = seconds / times
    finding.figures[nbytes] = each / 2 if plan.test == "latency" else WINDOW * nbytes / each


def checked(
    pair: Pair, plan: Plan, nbytes: int, turn: int, times: int, report: Report
) -> tuple[float, str]:
    """Seconds of so many turns with the same data, and what is wrong of the data then."""
    pair.prepare(nbytes, turn)
    pair.world.barrier()
    seconds = 0.0
    for done in range(0, times, _LAP):
        report(f"turns of {nbytes} bytes", done, times)
        seconds += LOOPS[plan.test](pair, nbytes, min(_LAP, times - done))
    received = plan.test == "latency" or pair.world.rank == 1
    return seconds, pair.first_wrong(nbytes, turn) if received else ""

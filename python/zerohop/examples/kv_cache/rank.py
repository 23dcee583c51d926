"""What each rank does: rank 0 decodes, measures and checks; rank 1 has computed all blocks and hands them over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerohop.examples.kv_cache.cache import Cache
from zerohop.examples.kv_cache.decode import Decode
from zerohop.examples.kv_cache.plan import LANES, Plan, Request
from zerohop.examples.kv_cache.prefill import Prefill

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.world import World

__all__ = ["Finding", "Spec", "work"]

_NAME = "kv cache"
_PREPARED_S = 300.0  # seconds in which both caches are filled


@dataclass(frozen=True)
class Spec:
    plan: Plan
    devices: tuple[str, ...]


@dataclass
class Finding:
    """latencies: of each request, in seconds. seconds: of all laps, without the checks in between."""

    device: str
    route: str = ""
    seconds: float = 0.0
    nbytes: int = 0
    blocks: int = 0  # checked, of all layers
    latencies: list[float] = field(default_factory=list)
    wrong: list[str] = field(
        default_factory=list
    )  # of each request that has a wrong block, the first


def work(world: World, spec: Spec, report: Report) -> Finding | None:
    """On rank 0 what was found; nothing elsewhere."""
    plan, device = spec.plan, spec.devices[world.local_rank % len(spec.devices)]
    finding = None
    with Cache(world.endpoint, plan, device) as cache:
        world.endpoint.share(_NAME, cache.memory)
        if world.rank == 0:
            cache.clear()
            world.barrier(_PREPARED_S)
            finding = asyncio.run(Asked(world, plan, cache, device).measure(report))
        else:
            cache.prefill()
            world.barrier(_PREPARED_S)
            decode = world.peer(0)
            asyncio.run(Prefill(decode, plan, cache.memory, decode.lookup(_NAME)).serve())
        world.barrier()
    return finding


class Asked:
    """The decode side, lap by lap: each is checked, and then cleared, behind the time that is taken."""

    def __init__(self, world: World, plan: Plan, cache: Cache, device: str) -> None:
        self._plan, self._cache = plan, cache
        prefill = world.peer(1)
        self._decode = Decode(world.endpoint, prefill)
        route = prefill.route(cache.memory, prefill.lookup(_NAME))
        self._finding = Finding(device, str(route), latencies=self._decode.latencies)

    async def measure(self, report: Report) -> Finding:
        for number, lap in enumerate(self._plan.laps()):
            if number == 0:
                await self._run(lap[:LANES], report)  # once, checked, before it counts
                self._finding.seconds, self._finding.nbytes = 0.0, 0
                self._finding.latencies.clear()
            await self._run(lap, report)
        await self._decode.stop()
        return self._finding

    async def _run(self, lap: list[Request], report: Report) -> None:
        def looked() -> None:
            report("requests", len(self._decode.latencies), self._plan.requests)

        self._finding.seconds += await self._decode.fetch(lap, looked)
        for request in lap:
            self._finding.nbytes += self._plan.nbytes(request)
            self._finding.blocks += len(request.wanted) * self._plan.layers
            wrong = self._cache.first_wrong(request)
            if wrong:
                self._finding.wrong.append(wrong)
        self._cache.clear()

"""What each rank does: the client measures and checks, the servers serve; every size and way in its turn."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.examples.matvec.face import Client, Lap, Server
from zerohop.examples.matvec.host import HostClient, HostServer
from zerohop.examples.matvec.plan import BUFFERS, Plan
from zerohop.examples.matvec.problem import SETS, SIDE, Problem, first_wrong, poison
from zerohop.examples.place import Gpu, Place, open_place

if TYPE_CHECKING:
    from zerohop.examples.job import Report
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["SOURCE", "Finding", "Spec", "work"]

SOURCE = Path(__file__).parent / "matvec.cu"
_WARM = 20  # batches that are checked, but not counted
_PREPARED_S = 300.0  # seconds in which the client has computed its reference


@dataclass(frozen=True)
class Spec:
    batches: tuple[int, ...]  # their sizes, in vectors
    rounds: int  # batches sent one at a time, and again with two under way
    ways: tuple[str, ...]  # "host", "kernel"
    devices: tuple[str, ...]


@dataclass
class Finding:
    """Of one size and way. latency_s: median from the send of a batch to its answer."""

    batch: int
    way: str
    device: str
    route: str = ""
    latency_s: float = 0.0
    batches_per_s: float = 0.0  # with two under way
    checked: int = 0  # batches
    wrong: list[str] = field(default_factory=list)


def work(world: World, spec: Spec, report: Report) -> list[Finding]:
    """On rank 0 what was found; nothing elsewhere."""
    place = open_place(spec.devices[world.local_rank % len(spec.devices)], SOURCE)
    findings = []
    for batch in spec.batches:
        plan = Plan(batch, world.size - 1)
        client = Reference(batch) if world.rank == 0 else None
        for way in spec.ways:
            nbytes = plan.client_nbytes if client is not None else plan.server_nbytes
            name = f"matvec {batch} {way}"
            options: dict[str, Any] = {"name": name, "notifications": plan.notifications}
            with world.segment(nbytes, device=place.device, **options) as segment:
                if client is None:
                    serve(world, segment, plan, place, way)
                else:
                    asked = Asked(world, segment, plan, place, way, client)
                    findings.append(asked.measure(spec.rounds, report))
                world.barrier(_PREPARED_S)
    return findings


def serve(world: World, segment: Segment, plan: Plan, place: Place, way: str) -> None:
    server = make_server(world, segment, plan, place, way)
    world.barrier(_PREPARED_S)
    server.serve()
    server.close()


def make_server(world: World, segment: Segment, plan: Plan, place: Place, way: str) -> Server:
    if way == "host":
        return HostServer(world, segment, plan, place)
    from zerohop.examples.matvec.kernel import KernelServer

    assert isinstance(place, Gpu)
    return KernelServer(world, segment, plan, place)


def make_client(world: World, segment: Segment, plan: Plan, place: Place, way: str) -> Client:
    if way == "host":
        return HostClient(world, segment, plan)
    from zerohop.examples.matvec.kernel import KernelClient

    assert isinstance(place, Gpu)
    return KernelClient(world, segment, plan, place)


class Reference:
    """The vectors, and what must come of them."""

    def __init__(self, batch: int) -> None:
        problem = Problem(batch)
        self.vectors, self.expected = problem.vectors(), problem.expected()


class Asked:
    """The client's side of one size and way."""

    def __init__(
        self,
        world: World,
        segment: Segment,
        plan: Plan,
        place: Place,
        way: str,
        reference: Reference,
    ) -> None:
        self._plan, self._place, self._expected = plan, place, reference.expected
        floats = place.bytes_of(segment.local).view(np.float32)
        vectors = floats[: SETS * plan.batch * SIDE].reshape(SETS, plan.batch, SIDE)
        vectors[...] = place.xp.asarray(reference.vectors)
        self._products = floats[vectors.size :].reshape(plan.lap, plan.batch, SIDE)
        poison(self._products)
        place.finish()
        self._client = make_client(world, segment, plan, place, way)
        self._finding = Finding(plan.batch, way, place.device)
        self._finding.route = str(world.peer(1).route(segment.local, segment.remote(1)))
        self._next = 0  # number of a batch
        world.barrier(_PREPARED_S)

    def measure(self, rounds: int, report: Report) -> Finding:
        """Warms up, then sends so many batches one by one, then as many with two under way."""
        total = _WARM + 2 * rounds
        self._run(_WARM, BUFFERS, report, total)
        alone = self._run(rounds, 1, report, total)
        together = self._run(rounds, BUFFERS, report, total)
        self._client.close()
        self._finding.latency_s = statistics.median(alone.latencies)
        self._finding.batches_per_s = rounds / together.seconds
        return self._finding

    def _run(self, count: int, window: int, report: Report, total: int) -> Lap:
        """In laps, each checked behind the time that is taken."""
        whole = Lap()
        while count > 0:
            first, number = self._next, min(count, self._plan.lap)
            begun = partial(self._looked, report, total)
            lap = self._client.send(first, number, window, begun)
            whole.seconds += lap.seconds
            whole.latencies += lap.latencies
            self._check(first, number)
            self._next, count = first + number, count - number
        return whole

    def _looked(self, report: Report, total: int, done: int) -> None:
        report(f"{self._finding.batch} vectors by {self._finding.way}", self._next + done, total)

    def _check(self, first: int, count: int) -> None:
        """Every element of every product; then none of them is there any more."""
        for number in range(first, first + count):
            products = self._place.to_host(self._products[number % self._plan.lap])
            wrong = first_wrong(products, self._expected[number % SETS], number)
            self._finding.checked += 1
            if wrong is not None:
                self._finding.wrong.append(wrong)
        poison(self._products)
        self._place.finish()

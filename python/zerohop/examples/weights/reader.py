"""A reader: it uses one copy of the model while the next version comes into the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from zerohop.examples.arrays import Arrays, arrays_of
from zerohop.examples.failures import OutOfStep
from zerohop.examples.weights.plan import ACKNOWLEDGED, COPIES, Floats, Plan, copy_name

if TYPE_CHECKING:
    from zerohop._core import Memory
    from zerohop.world import World

__all__ = ["TOLD", "Reader", "differing"]

TOLD = 0  # tag of what a reader says to the trainer at the end


class Reader:
    """Rank 0 is the trainer."""

    def __init__(self, world: World, plan: Plan, device: str) -> None:
        self._world, self._plan = world, plan
        self._arrays: Arrays = arrays_of(device)
        self._copies = [self._copy(version, device) for version in range(COPIES)]
        self._trainer = world.peer(0)

    def _copy(self, version: int, device: str) -> Memory:
        copy = self._world.endpoint.empty(self._plan.parameters, "float32", device=device)
        self._world.endpoint.share(copy_name(version), copy)
        return copy

    def read(self, got: Callable[[int], None]) -> str:
        """All versions. got: called with each that is here. The first that is wrong, in words; empty if none is."""
        first = ""
        for version, right in enumerate(self._plan.reference(), 1):
            value = self._world.endpoint.wait_notify(version % COPIES)  # its data is there before
            if value != version:
                raise OutOfStep(f"got version {value} where {version} is due")
            got(version)
            # From now on this copy is used, and the other one may be written.
            self._trainer.notify(ACKNOWLEDGED + self._world.rank, version).wait()
            wrong = differing(self._values(version), right, self._plan)
            if wrong and not first:
                first = f"version {version} at rank {self._world.rank}: {wrong}"
        return first

    def _values(self, version: int) -> Floats:
        return self._arrays.to_host(self._arrays.view(self._copies[version % COPIES]))

    def tell(self, wrong: str) -> None:
        """To the trainer, which leaves behind all readers."""
        self._trainer.send(np.frombuffer((wrong or " ").encode(), np.uint8), tag=TOLD).wait()


def differing(found: Floats, right: Floats, plan: Plan) -> str:
    """In words, the first number that is not the reference's, bit for bit; empty if there is none."""
    where = np.flatnonzero(found.view(np.uint32) != right.view(np.uint32))
    if not len(where):
        return ""
    at = int(where[0])
    number, place = next((n, p) for n, p in enumerate(plan.places()) if p.start <= at < p.stop)
    return (
        f"element {at - place.start} of parameter {number} is {found[at]:.9g}, not {right[at]:.9g}; of {len(found)} "
        f"numbers {len(where)} are wrong"
    )

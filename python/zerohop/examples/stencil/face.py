"""The face that both ways have: who steps the grids of one rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerohop.examples.stencil.plan import Plan

if TYPE_CHECKING:
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["Looked", "Stepper"]

Looked = Callable[[int], None]  # told now and then how many steps are done


class Stepper(ABC):
    def __init__(self, world: World, segment: Segment, plan: Plan) -> None:
        self.world, self.segment, self.plan = world, segment, plan
        self.strip, self.sides = plan.strip(world.rank), plan.sides(world.rank)

    @abstractmethod
    def run(self, steps: int, looked: Looked) -> None:
        """Steps from the state in grid 0, step 1 first; all ranks call it with the same `steps`.

        When it returns all is done, and every slot is empty. Raises zerohop.Error, KernelFailed, OutOfStep.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of what kernels use."""

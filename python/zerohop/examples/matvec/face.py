"""The face that both ways have: a client that sends laps of batches, a server that serves until it is stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerohop.examples.matvec.plan import STOP, Plan

if TYPE_CHECKING:
    from zerohop.segment import Segment

__all__ = ["Client", "Lap", "Looked", "Server"]

Looked = Callable[[int], None]  # told now and then how many batches of a lap are answered


@dataclass
class Lap:
    """Times of some batches in a row, in seconds: all of them, and each from its send to its answer."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # where one batch at a time was under way


class Client(ABC):
    """On rank 0. plan: what lies where in the segment; servers are the other ranks."""

    def __init__(self, segment: Segment, plan: Plan) -> None:
        self.segment, self.plan = segment, plan

    @abstractmethod
    def send(self, first: int, count: int, window: int, looked: Looked) -> Lap:
        """Sends the batches [first, first + count) with at most `window` (1 or 2) under way.

        All are answered when it returns. Raises zerohop.Error, KernelFailed, OutOfStep.
        """

    def stop(self, number: int, blocks: Sequence[int]) -> None:
        """Ends the servers, of which each waits for `number` in so many blocks."""
        for server, count in enumerate(blocks):
            for block in range(count):
                self.segment.notify(1 + server, self.plan.slot(0, number, block), STOP)
        self.segment.wait()

    @abstractmethod
    def close(self) -> None:
        """Ends the servers and lets go of what kernels use."""


class Server(ABC):
    @abstractmethod
    def serve(self) -> None:
        """Returns when the client has stopped it. Raises zerohop.Error, KernelFailed, OutOfStep."""

    @abstractmethod
    def close(self) -> None: ...

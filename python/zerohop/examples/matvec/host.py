"""Client and server driven by the CPU: it waits for each notification, launches the product, and writes it back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop.examples.failures import OutOfStep
from zerohop.examples.matvec.face import Client, Lap, Looked, Server
from zerohop.examples.matvec.plan import BUFFERS, STOP, Plan
from zerohop.examples.matvec.problem import NBYTES, SIDE, Problem
from zerohop.examples.place import Cpu, Gpu, Place

if TYPE_CHECKING:
    from zerohop._core import Transfer
    from zerohop.segment import Segment
    from zerohop.world import World

__all__ = ["HostClient", "HostServer", "take"]

_THREADS = 256  # of a block that multiplies: 8 vectors at a time, enough blocks for every GPU


def take(world: World, segment: Segment, slot: int, allowed: tuple[int, ...]) -> int:
    """Waits for a slot of the segment and empties it. Raises OutOfStep, TransferTimeout, PeerLost."""
    value = world.endpoint.wait_notify(segment.slots[slot])
    if value not in allowed:
        raise OutOfStep(f"slot {slot} of {segment}: got {value} where {allowed[0]} is due")
    return value


class HostClient(Client):
    def __init__(self, world: World, segment: Segment, plan: Plan) -> None:
        super().__init__(segment, plan)
        self._world, self._next = world, 0

    def send(self, first: int, count: int, window: int, looked: Looked) -> Lap:
        lap, begun = Lap(), []
        for turn in range(count + window - 1):
            if turn < count:
                begun.append(time.perf_counter())
                self._post(first + turn)
            done = turn - window + 1
            if done >= 0:
                self._await(first + done)
                lap.latencies.append(time.perf_counter() - begun[done])
                looked(done + 1)
        lap.seconds = time.perf_counter() - begun[0]
        self.segment.wait()
        self._next = first + count
        return lap

    def _post(self, number: int) -> None:
        plan = self.plan
        for server in range(plan.servers):
            share = plan.share(server)
            self.segment.write_notify(
                1 + server,
                plan.vectors_at(number) + share.start * NBYTES,
                plan.buffer_at(number),
                slot=plan.slot(0, number),
                value=number + 1,
                nbytes=len(share) * NBYTES,
            )

    def _await(self, number: int) -> None:
        for server in range(self.plan.servers):
            take(self._world, self.segment, self.plan.slot(server, number), (number + 1,))

    def close(self) -> None:
        self.stop(self._next, [1] * self.plan.servers)


class HostServer(Server):
    def __init__(self, world: World, segment: Segment, plan: Plan, place: Place) -> None:
        self._world, self._segment, self._plan, self._place = world, segment, plan, place
        self._server = world.rank - 1
        self._share = plan.share(self._server)
        self._multiply = self._multiplier(Problem(plan.batch))
        self._posted: list[Transfer | None] = [None] * BUFFERS

    def _multiplier(self, problem: Problem) -> Callable[[int], None]:
        plan, share, place = self._plan, self._share, self._place
        part = place.bytes_of(self._segment.local)
        shape = len(share), SIDE

        def buffer(begin: int) -> Any:
            return part[begin : begin + len(share) * NBYTES].view(np.float32).reshape(shape)

        vectors = [buffer(plan.buffer_at(number)) for number in range(BUFFERS)]
        products = [buffer(plan.answer_at(number)) for number in range(BUFFERS)]
        matrices = problem.matrices(share.start, share.stop)
        if isinstance(place, Cpu):
            return lambda number: multiply(matrices, vectors[number], products[number])
        return _launcher(place, matrices, vectors, products)

    def serve(self) -> None:
        number = 0
        while (
            take(self._world, self._segment, self._plan.slot(0, number), (number + 1, STOP)) != STOP
        ):
            self._answer(number)
            number += 1
        self._segment.wait()

    def _answer(self, number: int) -> None:
        plan, buffer = self._plan, number % BUFFERS
        before = self._posted[buffer]
        if before is not None and not self._in_stream(before):
            before.wait()  # what it reads is written now
        self._multiply(buffer)
        self._posted[buffer] = self._segment.write_notify(
            0,
            plan.answer_at(number),
            plan.products_at(number) + self._share.start * NBYTES,
            slot=plan.slot(self._server, number),
            value=number + 1,
            nbytes=len(self._share) * NBYTES,
            stream=self._place.stream,
        )

    def _in_stream(self, answer: Transfer) -> bool:
        """Whether the stream has it read before the next product is written there."""
        return self._place.stream is not None and answer.route.kind == "p2p"

    def close(self) -> None:
        """Nothing is held."""


def multiply(matrices: Any, vectors: Any, products: Any) -> None:
    """By NumPy: products[n] = matrices[n] @ vectors[n]."""
    np.matmul(matrices, vectors[:, :, None], out=products[:, :, None])


def _launcher(place: Gpu, matrices: Any, vectors: Any, products: Any) -> Callable[[int], None]:
    columns = place.xp.asarray(np.ascontiguousarray(matrices.transpose(0, 2, 1)))
    kernel, count = place.kernel("multiply"), len(columns)
    blocks = -(-count * SIDE // _THREADS)
    stream = place.stream
    arguments = [
        (columns, vectors[buffer], products[buffer], np.uint32(count)) for buffer in range(BUFFERS)
    ]
    kernel((blocks,), (_THREADS,), arguments[0], stream=stream)  # once, before it counts
    place.finish()
    return lambda buffer: kernel((blocks,), (_THREADS,), arguments[buffer], stream=stream)

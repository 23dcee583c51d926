"""The steps of a program as calls of a World."""

from collections.abc import Callable
from typing import Any

import numpy as np

from support.programs.model import (
    APART,
    BEHIND,
    GAPS,
    LISTED,
    REDUCTIONS,
    Part,
    Program,
    Step,
    neighbours,
    parts,
)
from support.programs.room import Room
from support.reduced import FACTOR

Finish = Callable[[], str]  # waits for the call; says what is wrong, or ""


class OnWorld:
    def __init__(self, world: Any) -> None:
        self.world, self.rank, self.size = world, world.rank, world.size

    def perform(self, program: Program, number: int) -> Finish:
        step = program.steps[number]
        if step.call == "barrier":
            self.world.barrier()
            return str
        part = parts(program, number, self.size)[self.rank]
        if step.call == "number":
            return self._number(step, part)
        form = step.forms[self.rank] if step.forms else ""
        call = _Call(self.world, step, part, form)
        collective = call.make()

        def finish() -> str:
            collective.wait()
            assert collective.done
            return call.check()

        return finish

    def _number(self, step: Step, part: Part) -> Finish:
        assert part.sent is not None
        assert part.got is not None
        came = self.world.all_reduce(part.sent[0].item(), step.op)
        expected = part.got[0].item()
        wrong = came != expected or type(came) is not type(expected)
        return lambda: f"{came!r}, not {expected!r}" if wrong else ""


class _Call:
    """One call of one rank, with its arrays."""

    def __init__(self, world: Any, step: Step, part: Part, form: str) -> None:
        self.world, self.step, self.part, self.form = world, step, part, form
        self.rooms: list[tuple[Room, np.ndarray | None]] = []  # with what each must have in the end

    def check(self) -> str:
        wrong = (room.check(expected) for room, expected in self.rooms)
        return "; ".join(each for each in wrong if each)

    def room(self, values: np.ndarray | None, expected: np.ndarray | None) -> Room:
        """With `values`, or an output for `expected`."""
        like = expected if values is None else values
        assert like is not None
        room = Room(self.world.endpoint, self.step.dtype, values, len(like), self.form)
        self.rooms.append((room, expected))
        return room

    def sent(self) -> Any:
        return None if self.part.sent is None else self.room(self.part.sent, None).array

    def got(self) -> Any:
        return None if self.part.got is None else self.room(None, self.part.got).array

    def listed(self, values: np.ndarray | None, got: np.ndarray | None, counts: Any) -> Any:
        """An array with all parts, or a list of arrays, and the counts= of the call."""
        if LISTED not in self.form:
            return self.room(values, got).array, list(counts) if self.step.uneven else None
        arrays, begin = [], 0
        for count in counts:
            block = slice(begin, begin + count)
            one = [None if whole is None else whole[block] for whole in (values, got)]
            arrays.append(self.room(*one).array)
            begin += count
        return arrays, None

    def make(self) -> Any:
        step, world = self.step, self.world
        how: dict[str, Any] = {"wait": BEHIND not in self.form}
        if step.op == "premul_sum":
            how["factor"] = FACTOR
        if step.call in REDUCTIONS:
            return self.reduction(how)
        if step.call in ("ring", "pair"):
            to, source = neighbours(step, world.rank, world.size)
            return world.send_recv(to=to, array=self.sent(), from_=source, out=self.got(), **how)
        if step.call == "broadcast":
            values = self.part.sent
            room = self.room(values, self.part.got if values is None else None)
            return world.broadcast(room.array, step.root % world.size, **how)
        return getattr(self, step.call)(how)

    def reduction(self, how: dict[str, Any]) -> Any:
        step, world, part = self.step, self.world, self.part
        if step.call == "reduce_scatter":
            given, counts = self.listed(part.sent, None, part.counts)
            return world.reduce_scatter(self.got(), given, step.op, counts=counts, **how)
        if APART in self.form and part.got is not None:
            how["out"] = self.got()
            array = self.sent()
        else:
            array = self.room(part.sent, part.got).array
        if step.call == "reduce":
            return world.reduce(array, step.root % world.size, step.op, **how)
        return getattr(world, step.call)(array, step.op, **how)

    def scatter(self, how: dict[str, Any]) -> Any:
        given, counts = None, None
        if self.part.sent is not None:
            given, counts = self.listed(self.part.sent, None, self.part.counts)
        root = self.step.root % self.world.size
        return self.world.scatter(self.got(), given, root, counts=counts, **how)

    def gather(self, how: dict[str, Any]) -> Any:
        out, counts = None, None
        if self.part.got is not None:
            out, counts = self.listed(None, self.part.got, self.part.got_counts)
        root = self.step.root % self.world.size
        return self.world.gather(out, self.sent(), root, counts=counts, **how)

    def all_gather(self, how: dict[str, Any]) -> Any:
        part, rank = self.part, self.world.rank
        if APART in self.form or LISTED in self.form or GAPS in self.form:
            out, counts = self.listed(None, part.got, part.got_counts)
            return self.world.all_gather(out, self.sent(), counts=counts, **how)
        out, counts = self.listed(None, part.got, part.got_counts)  # in place
        room = self.rooms[-1][0]
        begin = sum(part.got_counts[:rank])
        room.values()[begin : begin + part.got_counts[rank]] = part.sent
        own = room.part(begin, part.got_counts[rank])
        return self.world.all_gather(out, own, counts=counts, **how)

    def all_to_all(self, how: dict[str, Any]) -> Any:
        part = self.part
        given, counts = self.listed(part.sent, None, part.counts)
        out, out_counts = self.listed(None, part.got, part.got_counts)
        return self.world.all_to_all(out, given, counts=counts, out_counts=out_counts, **how)

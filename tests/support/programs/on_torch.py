"""The steps of a program as calls of torch.distributed, by zerohop or by gloo."""

from typing import Any

import numpy as np
import torch.distributed as dist

from support.programs.model import (
    BEHIND,
    LISTED,
    OWN,
    TENSOR,
    Part,
    Program,
    Step,
    close_to,
    neighbours,
    parts,
)
from support.programs.on_world import Finish
from support.programs.room import Room
from support.reduced import FACTOR

_OPS = {
    "sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG, "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
}  # fmt: skip


class OnTorch:
    """exact: whether its results are those of the model, bit for bit, and ranks may make a call in different forms."""

    def __init__(self, group: Any, exact: bool = True) -> None:
        self.group, self.exact = group, exact
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def perform(self, program: Program, number: int) -> Finish:
        step = program.steps[number]
        part = parts(program, number, self.size)[self.rank]
        form = step.forms[self.rank] if step.forms else ""
        call = _Call(self.group, step, part, form if self.exact else "")
        works = call.make(BEHIND in form and self.exact)

        def finish() -> str:
            for work in works:
                work.wait()
            if self.exact or not step.op:
                return call.check()
            return call.check_near(program, number, self.size)

        return finish


class WithGloo:
    """Each call by zerohop, and by gloo where it has such a call."""

    def __init__(self, group: Any, gloo: Any) -> None:
        self._ours, self._gloo = OnTorch(group), OnTorch(gloo, exact=False)
        self.rank = self._ours.rank

    def perform(self, program: Program, number: int) -> Finish:
        both = [self._ours.perform(program, number)]
        if gloo_takes(program.steps[number]):
            both.append(self._gloo.perform(program, number))

        def finish() -> str:
            wrong = [each() for each in both]
            return "; gloo: ".join(wrong) if any(wrong) else ""

        return finish


def gloo_takes(step: Step) -> bool:
    return not (
        (step.uneven and step.call not in ("all_to_all", "pair"))
        or step.op in ("avg", "premul_sum")
        or step.dtype.startswith("complex")
        or (step.op and step.dtype in ("bool", "int16"))
        or (step.op == "prod" and step.dtype in ("float16", "bfloat16"))
    )


class _Call:
    def __init__(self, group: Any, step: Step, part: Part, form: str) -> None:
        self.group, self.step, self.part = group, step, part
        self.form = form.replace(OWN, "") + TENSOR
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.rooms: list[tuple[Room, np.ndarray | None]] = []

    def check(self) -> str:
        wrong = (room.check(expected) for room, expected in self.rooms)
        return "; ".join(each for each in wrong if each)

    def check_near(self, program: Program, number: int, size: int) -> str:
        for room, expected in self.rooms:
            if expected is not None and not close_to(
                program, number, size, room.values(), expected
            ):
                return f"{room.values()} is not near {expected}"
        return ""

    def room(self, values: np.ndarray | None, expected: np.ndarray | None) -> Any:
        like = expected if values is None else values
        assert like is not None
        room = Room(None, self.step.dtype, values, len(like), self.form)
        self.rooms.append((room, expected))
        return room.array

    def blocks(self, values: np.ndarray | None, got: np.ndarray | None, counts: Any) -> list[Any]:
        """A tensor for each rank."""
        tensors, begin = [], 0
        for count in counts:
            block = slice(begin, begin + count)
            one = [None if whole is None else whole[block] for whole in (values, got)]
            tensors.append(self.room(*one))
            begin += count
        return tensors

    def make(self, behind: bool) -> list[Any]:
        step = self.step
        how: dict[str, Any] = {"group": self.group, "async_op": behind}
        if step.call == "barrier":
            work = dist.barrier(**how)
        elif step.call in ("ring", "pair"):
            return self.between_two()
        else:
            work = getattr(self, step.call)(how)
        return [work] if behind else []

    def op(self) -> Any:
        if self.step.op == "premul_sum":
            return dist._make_nccl_premul_sum(FACTOR)
        return _OPS[self.step.op]

    @property
    def root(self) -> int:
        return dist.get_global_rank(self.group, self.step.root % self.size)

    def broadcast(self, how: dict[str, Any]) -> Any:
        values = self.part.sent
        tensor = self.room(values, self.part.got if values is None else None)
        return dist.broadcast(tensor, self.root, **how)

    def scatter(self, how: dict[str, Any]) -> Any:
        given = None
        if self.part.sent is not None:
            given = self.blocks(self.part.sent, None, self.part.counts)
        return dist.scatter(self.room(None, self.part.got), given, self.root, **how)

    def gather(self, how: dict[str, Any]) -> Any:
        out = None
        if self.part.got is not None:
            out = self.blocks(None, self.part.got, self.part.got_counts)
        return dist.gather(self.room(self.part.sent, None), out, self.root, **how)

    def all_gather(self, how: dict[str, Any]) -> Any:
        given = self.room(self.part.sent, None)
        if LISTED in self.form or self.step.uneven:
            out = self.blocks(None, self.part.got, self.part.got_counts)
            return dist.all_gather(out, given, **how)
        out = self.room(None, self.part.got)
        gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return gather(out, given, **how)

    def all_to_all(self, how: dict[str, Any]) -> Any:
        part = self.part
        if LISTED in self.form:
            given = self.blocks(part.sent, None, part.counts)
            return dist.all_to_all(self.blocks(None, part.got, part.got_counts), given, **how)
        counts = (list(part.got_counts), list(part.counts)) if self.step.uneven else (None, None)
        out, given = self.room(None, part.got), self.room(part.sent, None)
        return dist.all_to_all_single(out, given, *counts, **how)

    def all_reduce(self, how: dict[str, Any]) -> Any:
        return dist.all_reduce(self.room(self.part.sent, self.part.got), self.op(), **how)

    def reduce(self, how: dict[str, Any]) -> Any:
        tensor = self.room(self.part.sent, self.part.got)
        return dist.reduce(tensor, self.root, self.op(), **how)

    def reduce_scatter(self, how: dict[str, Any]) -> Any:
        out = self.room(None, self.part.got)
        if LISTED in self.form or self.step.uneven:
            given = self.blocks(self.part.sent, None, self.part.counts)
            return dist.reduce_scatter(out, given, self.op(), **how)
        scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return scatter(out, self.room(self.part.sent, None), self.op(), **how)

    def between_two(self) -> list[Any]:
        to, source = neighbours(self.step, self.rank, self.size)
        works = []
        if source is not None:
            source = dist.get_global_rank(self.group, source)
            works.append(dist.irecv(self.room(None, self.part.got), source, group=self.group))
        if to is not None:
            to = dist.get_global_rank(self.group, to)
            works.append(dist.isend(self.room(self.part.sent, None), to, group=self.group))
        return works

"""A Turn: one collective while it runs on this rank, with the tools of its algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.history import Called
from zerohop.collectives.blocks import Block
from zerohop.collectives.copies import Copier
from zerohop.collectives.exchange import Exchange, Move
from zerohop.collectives.lines import Lines

FEW = _core.Lines.FEW  # ranks: so few exchange small blocks all at once


@dataclass(frozen=True)
class Turn:
    """call: its record in History; for send_recv, which only some ranks call, with digest 0.

    proposes: whether this rank proposes a group of GPUs; proposers: the ranks that did so in the last exchange.
    """

    call: Called
    lines: Lines
    copier: Copier
    deadline: Deadline
    proposes: bool = False
    proposers: set[int] = field(default_factory=set)

    @property
    def rank(self) -> int:
        return self.lines.membership.rank

    @property
    def size(self) -> int:
        return self.lines.membership.size

    @property
    def others(self) -> list[int]:
        """The other ranks, starting after this one, so that no rank is the first of all."""
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    @property
    def root(self) -> int:
        return self.call.root

    def move(
        self,
        rank: int,
        block: Block,
        *,
        whole: int | None = None,
        part: int = 0,
        number: int | None = None,
    ) -> Move:
        """whole: bytes of the block that contains this one."""
        number = self.call.number if number is None else number
        return Move(rank, block, number, block.nbytes if whole is None else whole, part)

    def exchange(self, sends: Sequence[Move], receives: Sequence[Move]) -> None:
        if sends or receives:
            exchange = Exchange(self.call.kind, self.lines, self.copier, self.deadline)
            found = exchange.run(self.call, sends, receives, self.proposes)
            self.proposers.clear()
            self.proposers.update(found)

    @property
    def topology(self) -> _core.Topology:
        return self.lines.topology(self.deadline)

    def connect(self, ranks: Iterable[int]) -> None:
        self.lines.connect(ranks, self.deadline, all_needed=True)

    def reduce(
        self,
        reduction: tuple[int, float],
        source: Block,
        target: Block | None,
        room: Block | None,
        *,
        whole: int,
        before: int,
        written: bool,
        gpu: _core.GpuReducer | None,
    ) -> None:
        """As Exchange.run_stages()."""
        exchange = Exchange(self.call.kind, self.lines, self.copier, self.deadline)
        found = exchange.run_stages(
            self.call,
            reduction,
            source,
            target,
            room,
            whole=whole,
            before=before,
            written=written,
            proposes=self.proposes,
            gpu=gpu,
        )
        self.proposers.clear()
        self.proposers.update(found)

    def reducer(self, *blocks: Block) -> _core.GpuReducer | None:
        """Of the GPU in whose memory all of them are. None: CPUs reduce them."""
        devices = {each.flat.device for each in blocks}
        return self.copier.reducer(*devices) if len(devices) == 1 else None

    def copy(self, target: Block, source: Block) -> None:
        self.copier.copy(target, source, self.deadline)

"""A Turn: one collective while it runs on this rank, and what its algorithm works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zerohop._world.deadline import Deadline
from zerohop._world.history import Called
from zerohop.collectives.blocks import Block
from zerohop.collectives.copies import Copier
from zerohop.collectives.exchange import Exchange, Move
from zerohop.collectives.lines import Lines


@dataclass(frozen=True)
class Turn:
    """call: what History has of it; of send_recv, which only some ranks call, it has the digest 0."""

    call: Called
    lines: Lines
    copier: Copier
    deadline: Deadline

    @property
    def rank(self) -> int:
        return self.lines.membership.rank

    @property
    def size(self) -> int:
        return self.lines.membership.size

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
        """whole: bytes of the block of which this one is a part."""
        number = self.call.number if number is None else number
        return Move(rank, block, number, block.nbytes if whole is None else whole, part)

    def exchange(self, sends: Sequence[Move], receives: Sequence[Move]) -> None:
        if sends or receives:
            exchange = Exchange(self.call.kind, self.lines, self.copier, self.deadline)
            exchange.run(self.call, sends, receives)

    def copy(self, target: Block, source: Block) -> None:
        self.copier.copy(target, source, self.deadline)

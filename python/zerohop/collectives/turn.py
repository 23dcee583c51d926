"""A Turn: one collective while it runs on this rank, and what its algorithm works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zerohop.collectives.blocks import Block
from zerohop.collectives.copies import Copier
from zerohop.collectives.deadline import Deadline
from zerohop.collectives.exchange import Exchange, Move
from zerohop.collectives.header import NO_ROOT, Label
from zerohop.collectives.lines import Lines

__all__ = ["Turn"]


@dataclass(frozen=True)
class Turn:
    kind: str
    number: int
    lines: Lines
    copier: Copier
    deadline: Deadline
    root: int = NO_ROOT

    @property
    def rank(self) -> int:
        return self.lines.roster.rank

    @property
    def size(self) -> int:
        return self.lines.roster.size

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
        number = self.number if number is None else number
        nbytes = block.nbytes if whole is None else whole
        label = Label(self.kind, number, self.root, nbytes, part, block.flat.dtype)
        return Move(rank, block, label)

    def exchange(self, sends: Sequence[Move], receives: Sequence[Move]) -> None:
        if sends or receives:
            Exchange(self.lines, self.copier, self.deadline).run(sends, receives)

    def copy(self, target: Block, source: Block) -> None:
        self.copier.copy(target, source, self.deadline)

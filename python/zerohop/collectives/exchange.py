"""What collectives are made of: blocks that go to some ranks while others come from some.

A small block goes along with its header (DATA). Of a large one the receiver says at once where it belongs (READY), and the
sender writes it there and says so (DONE). So does the sender of a block on a GPU, however small; the receiver cannot know
and is told before (ANNOUNCE). A sender who waits for long announces a large block, too: a receiver who has made another call,
and does not know of any large one, finds that.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerohop import _core
from zerohop.collectives.blocks import Block
from zerohop.collectives.copies import Copier
from zerohop.collectives.deadline import Deadline
from zerohop.collectives.header import Label, Message, What
from zerohop.collectives.line import EAGER, Line
from zerohop.collectives.lines import Lines
from zerohop.ending import Mismatch

__all__ = ["Exchange", "Move"]

_NOTHING = np.empty(0, np.uint8)


class Move(NamedTuple):
    """A block to a rank, or from it."""

    rank: int
    block: Block
    label: Label


class Exchange:
    """Of one call; run() once."""

    def __init__(self, lines: Lines, copier: Copier, deadline: Deadline) -> None:
        self._lines, self._copier, self._deadline = lines, copier, deadline
        self._outgoing: defaultdict[int, deque[Move]] = defaultdict(deque)  # wait for READY
        self._incoming: defaultdict[int, deque[Move]] = defaultdict(deque)
        self._missing: dict[int, int] = {}  # messages by rank without which run() does not end
        self._announced = False
        self._of_all = False

    def run(self, sends: Sequence[Move], receives: Sequence[Move]) -> None:
        """Returns when all that is to come is there and what is sent may be changed."""
        moves = (*receives, *sends)
        self._of_all = any(move.label.kind != "send_recv" for move in moves)
        self._lines.begin(self._missing, self._of_all)
        # A sender may wait until its partner has an inbox for it.
        lines = {move.rank: self._lines.to(move.rank, self._deadline) for move in moves}
        for move in receives:
            self._expect(self._incoming, move)
            if move.block.nbytes > EAGER:
                self._offer(move)
        for move in sends:
            self._begin(move)
        for rank in list(self._missing):
            self._take_from(rank)
        while self._missing:
            heard = self._lines.hear(self._deadline)
            if heard is not None:
                self._take_from(heard)
            else:
                for line in lines.values():  # what has failed is never answered
                    line.look()
                self._announce()
        for line in lines.values():
            line.finish(self._deadline)

    def _expect(self, queues: defaultdict[int, deque[Move]], move: Move) -> None:
        queues[move.rank].append(move)
        self._missing[move.rank] = self._missing.get(move.rank, 0) + 1

    def _got(self, queues: defaultdict[int, deque[Move]], rank: int) -> None:
        queues[rank].popleft()
        self._missing[rank] -= 1
        if self._missing[rank] == 0:
            del self._missing[rank]

    def _tell(self, move: Move, what: What, payload: NDArray[np.uint8] = _NOTHING) -> None:
        line = self._lines.to(move.rank, self._deadline)
        line.send(what, move.label, payload, self._deadline)

    def _offer(self, move: Move) -> None:
        where = move.block.memory.remote.to_bytes()
        self._tell(move, What.READY, np.frombuffer(where, np.uint8))

    def _begin(self, move: Move) -> None:
        block = move.block
        if block.nbytes == 0:
            self._tell(move, What.DATA)
        elif block.nbytes <= EAGER and block.on_host:
            self._tell(move, What.DATA, block.bytes)
        else:
            self._expect(self._outgoing, move)
            if block.nbytes <= EAGER:
                self._tell(move, What.ANNOUNCE)

    def _announce(self) -> None:
        """Once: those that wait are told of what they have not asked for."""
        if not self._announced:
            self._announced = True
            for moves in self._outgoing.values():
                for move in moves:
                    if move.block.nbytes > EAGER:
                        self._tell(move, What.ANNOUNCE)

    def _take_from(self, rank: int) -> None:
        line = self._lines.to(rank, self._deadline)
        while rank in self._missing:
            wanted = {What.READY} if self._outgoing[rank] else set()
            if self._incoming[rank]:
                wanted |= {What.DATA, What.ANNOUNCE, What.DONE}
            message = line.take(wanted, of_all=self._of_all)
            if message is None:
                return
            self._on(line, message)

    def _on(self, line: Line, message: Message) -> None:
        queues = self._outgoing if message.what == What.READY else self._incoming
        expected = queues[line.rank] or self._incoming[line.rank] or self._outgoing[line.rank]
        move = expected[0]
        if not queues[line.rank] or message.label != move.label:
            raise self._lines.mismatch(line, message.label, move.label)
        if message.what == What.READY:
            self._write(line, move, message.payload)
        elif message.what == What.DATA:
            if len(message.payload) != move.block.nbytes:
                raise Mismatch(f"rank {line.rank} has sent {len(message.payload)} bytes of it")
            self._copier.fill(move.block, message.payload, self._deadline)
            self._got(self._incoming, line.rank)
        elif message.what == What.DONE:
            self._got(self._incoming, line.rank)
        elif move.block.nbytes <= EAGER:  # of a larger one it knows already
            self._offer(move)

    def _write(self, line: Line, move: Move, where: bytes) -> None:
        remote = _core.RemoteMemory.from_bytes(where)
        line.write(move.block.memory, remote, self._deadline)
        self._tell(move, What.DONE)  # behind the data, as every notification is
        self._got(self._outgoing, line.rank)

"""The building block of collectives: blocks that go to some ranks while others come from some.

The messages are in C++ (_core.Exchange); this part prepares the program's arrays for it, and handles its stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.ending import Mismatch
from zerohop._world.history import KINDS, Called
from zerohop.collectives.blocks import Block, Flat
from zerohop.collectives.copies import Copier
from zerohop.collectives.lines import EAGER, Lines
from zerohop.errors import Error

# The result of _core.Exchange.run(): the reason of a stop, its rank, and details.
Stop: TypeAlias = tuple[str, int, Any]


class Move(NamedTuple):
    """A block to or from a rank. number: of the call; whole: bytes of the block that contains this one."""

    rank: int
    block: Block
    number: int
    whole: int
    part: int


class Exchange:
    """For one call; call run() once."""

    def __init__(self, kind: str, lines: Lines, copier: Copier, deadline: Deadline) -> None:
        self._lines, self._copier, self._deadline = lines, copier, deadline
        self._of_all = kind != "send_recv"
        self._receives: Sequence[Move] = ()  # none of these
        self._flats: list[Flat] = []  # of these

    def run(
        self, call: Called, sends: Sequence[Move], receives: Sequence[Move], proposes: bool
    ) -> list[int]:
        """Returns when all blocks have arrived and the sent ones may be changed.

        proposes: a group of GPUs. Returns the other ranks that do so.
        """
        self._connect(move.rank for move in (*receives, *sends))
        self._receives = receives
        self._exchange = _core.Exchange(
            self._lines.membership.endpoint,
            self._lines.core,
            [_row(move) for move in sends],
            [_row(move) for move in receives],
            KINDS.index(call.kind),
            call.root,
            call.digest,
            self._of_all,
            proposes,
        )
        self._go_on()
        return self._exchange.proposers()

    def run_stages(
        self,
        call: Called,
        reduction: tuple[int, float],
        source: Block,
        target: Block | None,
        room: Block | None,
        *,
        whole: int,
        before: int,
        written: bool,
        proposes: bool,
        gpu: _core.GpuReducer | None,
    ) -> list[int]:
        """A part of a reduction. written: slices are, to registered memory, which the room then is, too.

        whole: bytes of the call's array; before: those before this part. gpu: in whose memory the blocks are; None: in the host's.
        Otherwise as run().
        """
        membership = self._lines.membership
        self._exchange = _core.begin_reduction(
            membership.endpoint,
            self._lines.core,
            membership.rank,
            reduction,
            (KINDS.index(call.kind), call.root, call.number, whole, call.digest),
            source.flat.dtype,
            [
                None if each is None else (each.address, each.memory if written else None)
                for each in (source, target, room)
            ],
            source.nbytes,
            before,
            proposes,
            gpu,
            self._deadline.left,
        )
        self._go_on()
        return self._exchange.proposers()

    def _connect(self, ranks: Iterable[int]) -> None:
        # A sender may have to wait until its partner has an inbox for it.
        self._lines.connect(ranks, self._deadline, all_needed=self._of_all)

    def go_on_with(self, exchange: _core.Exchange, stop: Stop | BaseException) -> None:
        """Continues one that has run. stop: its result or exception."""
        self._exchange = exchange
        if isinstance(stop, Error):
            raise self._named(stop) from None
        if isinstance(stop, BaseException):
            raise stop
        self._go_on(stop)

    def _go_on(self, stop: Stop | None = None) -> None:
        exchange, deadline = self._exchange, self._deadline
        try:
            while True:
                if stop is not None:
                    self._answer(*stop)
                try:
                    stop = exchange.run(deadline.slice, deadline.left)
                except Error as error:
                    raise self._named(error) from None
                if stop is None:
                    return
        finally:
            for flat in self._flats:
                flat.close()

    def _answer(self, news: str, rank: int, detail: Any) -> None:
        """Handles a stop."""
        lines, deadline = self._lines, self._deadline
        if news == "quiet":
            self._wait()
        elif news == "full":
            lines.wait_on(rank, deadline, self._exchange.missing(), self._of_all)
        elif news == "unmet":
            lines.meet(rank, deadline, self._exchange.missing(), self._of_all)
        elif news == "unregistered":
            self._exchange.set_memory(detail, self._place(detail).memory)
        elif news == "under_way":
            try:
                detail.wait(deadline.left)
            except Error as error:
                raise lines.membership.named(error, rank) from None
        elif news == "payload":
            number, payload = detail
            self._copier.fill(self._place(number), payload, deadline)
        elif news == "length":
            raise Mismatch(f"rank {rank} has sent {detail} bytes of it")
        else:
            raise lines.mismatch(rank, *detail)

    def _place(self, number: int) -> Block:
        """The block of that receive."""
        if self._receives:
            return self._receives[number].block
        endpoint = self._lines.membership.endpoint
        memory = self._exchange.memory(number)
        if memory is not None:
            return Flat(endpoint, memory, "out", writable=True).whole()
        out, begin, nbytes, dtype, itemsize = self._exchange.place(number)
        flat = Flat(endpoint, out, "out", writable=True)
        flat.dtype, flat.itemsize = dtype, itemsize
        self._flats.append(flat)
        return Block(flat, begin, nbytes)

    def _wait(self) -> None:
        exchange = self._exchange
        if self._lines.hear(exchange.missing(), self._of_all, self._deadline):
            return
        try:
            exchange.look()
        except Error as error:
            raise self._named(error) from None
        exchange.announce()

    def _named(self, error: Error) -> Error:
        """The error with the rank in its message."""
        rank = self._exchange.culprit
        return error if rank is None else self._lines.membership.named(error, rank)


def _row(move: Move) -> tuple[Any, ...]:
    """In the form of _core.Exchange. Large blocks and those on a GPU are registered."""
    rank, block, number, whole, part = move
    on_host = block.on_host
    needed = block.nbytes > EAGER or (not on_host and block.nbytes > 0)
    memory = block.memory if needed else None
    address = block.address if on_host else None
    return (rank, address, block.nbytes, memory, number, whole, part, block.flat.dtype)

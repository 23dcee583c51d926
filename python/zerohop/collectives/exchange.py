"""A collective while it runs on this rank.

What goes where and when, and the messages, are in C++ (_core.Exchange, cpp/engine/collective); this part prepares the program's arrays
for it, and handles its stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.ending import Mismatch
from zerohop._world.history import ALL_REDUCE, BROADCAST, KINDS, REDUCE, SCAN, Called
from zerohop.collectives.blocks import Block, Flat
from zerohop.collectives.copies import Copier
from zerohop.collectives.lines import Lines
from zerohop.collectives.reductions import Reduction
from zerohop.errors import Error

PIECE = 0  # most bytes of a block on the way at a time; 0: as C++ has it
# They go by host.
_OF_HOSTS = (BROADCAST, REDUCE, ALL_REDUCE, SCAN)

# The result of _core.Exchange.run(): the reason of a stop, its rank, and details.
Stop: TypeAlias = tuple[str, int, Any]


class Blocks(NamedTuple):
    """outs, ins: one, or one for each rank; a broadcast has its block in `ins`. pair: of a send_recv: to and from which rank."""

    outs: Sequence[Block]
    ins: Sequence[Block]
    pair: tuple[int | None, int | None] = (None, None)
    reduction: Reduction | None = None


class Exchange:
    """For one call; call run() once."""

    def __init__(self, kind: str, lines: Lines, copier: Copier, deadline: Deadline) -> None:
        self._lines, self._copier, self._deadline = lines, copier, deadline
        self._of_all = kind != "send_recv"
        self._flats: dict[int, Flat] = {}  # by number
        self._found: list[Flat] = []  # those that are closed at the end of the call

    def run(
        self,
        call: Called,
        blocks: Blocks,
        *,
        numbers: tuple[int, int] | None = None,
        kind: int | None = None,
        proposes: bool = False,
    ) -> list[int]:
        """Returns when all blocks have arrived and the sent ones may be changed.

        numbers: what is sent and received has; default: the call's. kind: what is done, if not the call. proposes: a group of GPUs.
        Returns the other ranks that do so.
        """
        lines, deadline = self._lines, self._deadline
        named = KINDS.index(call.kind)
        kind = named if kind is None else kind
        if kind in _OF_HOSTS:
            lines.topology(deadline)
        numbers = numbers or (call.number, call.number)
        self._exchange = self._made(call, named, kind, blocks, numbers, proposes)
        room = self._room()
        lines.connect(self._exchange.partners, deadline, all_needed=self._of_all)
        self._exchange.begin(room)
        self._go_on()
        return self._exchange.proposers()

    def _made(
        self,
        call: Called,
        named: int,
        kind: int,
        blocks: Blocks,
        numbers: tuple[int, int],
        proposes: bool,
    ) -> _core.Exchange:
        membership, (outs, ins, pair, reduction) = self._lines.membership, blocks
        flats = {id(each.flat): each.flat for each in (*outs, *ins)}
        self._flats = dict(enumerate(flats.values()))
        places = {key: number for number, key in enumerate(flats)}

        def rows(of: Sequence[Block]) -> list[tuple[int, int, int]]:
            return [(places[id(each.flat)], each.begin, each.nbytes) for each in of]

        gpu = None if reduction is None else self._copier.reducer_of(flats.values())
        sent, received = (each[0].flat.dtype if each else call.dtype for each in (ins, outs))
        return _core.Exchange(
            membership.endpoint,
            self._lines.core,
            (kind, membership.rank, membership.size, call.root),
            (named, *numbers, call.digest, sent, received),
            [_row(flat) for flat in flats.values()],
            rows(outs),
            rows(ins),
            pair,
            reduction or (0, 1.0),
            gpu,
            self._deadline.left,
            PIECE,
            proposes,
        )

    def _room(self) -> tuple[int, bool] | None:
        nbytes, on_host = self._exchange.room
        if not nbytes:
            return None
        device = "cpu" if on_host else self._flats[0].device
        room = self._flats[len(self._flats)] = self._copier.room(nbytes, device)
        return _row(room)

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
            for flat in self._found:
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
            self._exchange.set_memory(detail, self._flat(detail).memory)
        elif news == "under_way":
            try:
                detail.wait(deadline.left)
            except Error as error:
                raise lines.membership.named(error, rank) from None
        elif news == "payload":
            number, begin, payload = detail
            target = Block(self._flat(number), begin, len(payload))
            self._copier.fill(target, payload, deadline)
        elif news == "copy":
            number, begin, other, other_begin, nbytes = detail
            source = Block(self._flat(other), other_begin, nbytes)
            self._copier.copy(Block(self._flat(number), begin, nbytes), source, deadline)
        elif news == "length":
            raise Mismatch(f"rank {rank} has sent {detail} bytes of it")
        else:
            raise lines.mismatch(rank, *detail)

    def _flat(self, number: int) -> Flat:
        """The array of that number."""
        if number not in self._flats:
            array = self._exchange.array(number)
            flat = Flat(self._lines.membership.endpoint, array, "out")
            self._flats[number] = flat
            self._found.append(flat)
        return self._flats[number]

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


def _row(flat: Flat) -> tuple[int, bool]:
    return flat.address, flat.whole().on_host

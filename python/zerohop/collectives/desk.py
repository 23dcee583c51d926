"""The entry to a rank's collectives: turns the arrays of each call into blocks, and runs the calls in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zerohop import _core
from zerohop._endpoint.numbers import whole
from zerohop._world.deadline import SLICE, Deadline
from zerohop._world.ending import Ending
from zerohop._world.history import (
    ALL_GATHER,
    ALL_REDUCE,
    KINDS,
    NO_ROOT,
    REDUCE_SCATTER,
    SEND_RECV,
    Called,
    Common,
)
from zerohop.collectives.blocks import Block, Flat, cut, cut_evenly
from zerohop.collectives.copies import Copier
from zerohop.collectives.exchange import Blocks, Exchange, Stop
from zerohop.collectives.gpu_group import GpuGroup
from zerohop.collectives.lines import Lines
from zerohop.collectives.order import Collective, Order
from zerohop.collectives.reductions import Reduction
from zerohop.errors import RouteUnavailable

if TYPE_CHECKING:
    import numpy as np

    from zerohop._world.membership import Membership


# Calls in which every rank hears from every other, if all are on one host.
_HEARD_BY_ALL = (KINDS[ALL_REDUCE], KINDS[REDUCE_SCATTER])


class How(NamedTuple):
    """The arguments that all calls have in common."""

    stream: Any
    timeout: float | None
    wait: bool


class Desk:
    """gpus: how GPU arrays go, one of gpu_group.WAYS."""

    def __init__(self, membership: Membership, ending: Ending, gpus: str = "auto") -> None:
        self.gpus = GpuGroup(membership, gpus)
        self._membership = membership
        self.lines, self._copier = Lines(membership, ending), Copier(membership)
        self._calls = _core.SmallCollectives(
            membership.endpoint,
            self.lines.core,
            membership.history.log,
            membership.rank,
            membership.size,
            membership.reports.bell,
            SLICE,
            [
                Collective(f"{kind} of {membership.name!r}", membership.endpoint.timeout, True)
                for kind in KINDS
            ],
        )
        self._order = Order(self.lines, ending, self._calls)

    def rank(self, rank: int, what: str = "root") -> int:
        """Checks a rank. what: the argument's name. Raises IndexError, TypeError."""
        number = whole(what, rank)
        if not 0 <= number < self._membership.size:
            raise IndexError(f"{what} {rank}: ranks go from 0 to {self._membership.size - 1}")
        return number

    def flat(self, array: Any, what: str, *, writable: bool = False) -> Flat:
        return Flat(self._membership.endpoint, array, what, writable=writable)

    def parts(
        self, given: Any, what: str, counts: Iterable[int] | None, *, writable: bool = False
    ) -> tuple[list[Flat], list[Block]]:
        """Takes a list of arrays, one per rank, or an array to split along its first axis. Returns the arrays, and the blocks by rank."""
        size = self._membership.size
        if given is None:
            raise TypeError(
                f"{what} is None: on this rank it must be a list of {size} arrays, one for each rank, or one array that is split along "
                "its first axis; it may be left out only if another rank is the root"
            )
        if not isinstance(given, (list, tuple)):
            flat = self.flat(given, what, writable=writable)
            return [flat], cut_evenly(flat, size) if counts is None else cut(flat, counts, size)
        if counts is not None:
            raise ValueError(
                f"{what} is a list of arrays, which have their own sizes: counts= is not allowed"
            )
        if len(given) != size:
            raise ValueError(f"{what} has {len(given)} arrays for {size} ranks")
        flats = [
            self.flat(array, f"{what}[{rank}]", writable=writable)
            for rank, array in enumerate(given)
        ]
        return flats, [flat.whole() for flat in flats]

    def start(
        self,
        kind: str,
        root: int | None,
        flats: Sequence[Flat],
        how: How,
        blocks: Blocks,
        agreed: int | None = None,
        after: Callable[[], None] | None = None,
    ) -> Collective:
        """flats: all arrays. agreed: the size, if all ranks must have the same. after: called once it is complete. Raises its error, if it is waited for."""

        proposes = kind in _HEARD_BY_ALL and self.gpus.proposes(flats)

        def run(call: Called, deadline: Deadline) -> None:
            numbers = self._count_pair(blocks.pair) if kind == KINDS[SEND_RECV] else None
            exchange = Exchange(kind, self.lines, self._copier, deadline)
            proposers = exchange.run(call, blocks, numbers=numbers, proposes=proposes)
            if after is not None:
                after()
            if not proposes:
                return
            if self.lines.topology(deadline).hosts > 1:
                self.gpus.decline("the ranks do not all copy from and to each other on one host")
            elif len(proposers) == self._membership.size - 1:
                self.gpus.settle(flats, deadline, lambda notes: self._gather(call, notes, deadline))

        dtype = flats[0].dtype if flats else ""
        if blocks.reduction is not None:
            blocks.reduction.check(dtype)
        common = Common(NO_ROOT if root is None else root, agreed, dtype, *(blocks.reduction or ()))
        collective = self._start(kind, common, run, flats, how)
        if proposes:
            self.gpus.settles_with(collective)
        return collective

    def _count_pair(self, pair: tuple[int | None, int | None]) -> tuple[int, int]:
        """The numbers of the next send_recv to the one rank, and from the other; not of one with itself."""
        to, source = pair
        if to == self._membership.rank:
            return 0, 0
        return (
            0 if to is None else self._calls.count_sent(to),
            0 if source is None else self._calls.count_received(source),
        )

    def _gather(self, call: Called, notes: np.ndarray, deadline: Deadline) -> None:
        """Completes an array of one row from each rank, within that call."""
        blocks = cut_evenly(self.flat(notes, "notes", writable=True), len(notes))
        exchange = Exchange(call.kind, self.lines, self._copier, deadline)
        exchange.run(call, Blocks(blocks, [blocks[self._membership.rank]]), kind=ALL_GATHER)

    def at_once(
        self,
        kind: int,
        root: int | None,
        out: Any,
        array: Any,
        timeout: float | None,
        *reduction: Any,
    ) -> Collective | None:
        """The fast path for host arrays. None: another case, or wrong arguments, left to start().

        kind: index in KINDS. root: None for none. out: the output; None for a broadcast, and for a reduction in place. reduction: its
        operation and factor. Raises its error.
        """
        try:
            found = self._calls.of_all(kind, root, out, array, timeout, *reduction)
            if found is None or type(found) is Collective:
                return found
            return self._go_on(KINDS[kind], found)  # inside `try`: a signal may come before it
        except BaseException as error:  # noqa: BLE001 raised again after the report to the other ranks
            return self._go_on(KINDS[kind], error)

    def by_kernels(
        self,
        kind: int,
        root: int | None,
        sources: Sequence[_core.ArrayView],
        targets: Sequence[_core.ArrayView],
        how: How,
        reduction: Reduction | None = None,
    ) -> Collective:
        """A call with GPU arrays that the group of GPUs takes. sources, targets: a block, or one for each rank."""
        self._membership.check_open()
        self._order.check(KINDS[kind])
        if reduction is not None:
            reduction.check(sources[0].dtype)
        return self.gpus.call(
            kind, root, sources, targets, *how, self._order.failed, *(reduction or ())
        )

    def pair_at_once(
        self, to: int | None, array: Any, source: int | None, out: Any, timeout: float | None
    ) -> Collective | None:
        """The same for a send_recv."""
        try:
            found = self._calls.of_pair(to, array, source, out, timeout)
            if found is None or type(found) is Collective:
                return found
            return self._go_on("send_recv", found)
        except BaseException as error:  # noqa: BLE001 raised again after the report to the other ranks
            return self._go_on("send_recv", error)

    def _go_on(self, kind: str, stop: Stop | BaseException) -> Collective:
        """Continues a stopped call, which holds the lock; raises an error without a call."""
        exchange: _core.Exchange | None = None

        def body(deadline: Deadline) -> None:
            assert exchange is not None
            Exchange(kind, self.lines, self._copier, deadline).go_on_with(exchange, stop)

        try:
            exchange = self._calls.stopped()
            if exchange is None:
                assert isinstance(stop, BaseException)
                raise stop
            return self._order.go_on(kind, exchange.number, body, self._calls.left)
        finally:
            exchange = None  # its destruction changes the lines, which takes the lock
            self._calls.release()

    def _start(
        self,
        kind: str,
        common: Common,
        run: Callable[[Called, Deadline], None],
        flats: Sequence[Flat],
        how: How,
    ) -> Collective:
        self._membership.check_open()
        if not self._membership.slots.lines and self._membership.size > 1:
            raise RouteUnavailable(
                f"a World of {self._membership.size} ranks has fewer than two slots left per rank: use segments"
            )
        seconds = self._membership.bound(how.timeout)
        if how.stream is not None:
            self._copier.wait_for(how.stream, Deadline(seconds))
        return self._order.start(kind, common, run, flats, seconds, how.wait)

    def ring_off(self, seconds: float) -> None:
        """As Order.ring_off()."""
        self._order.ring_off(seconds)

    def join(self, seconds: float) -> bool:
        """As Order.join()."""
        return self._order.join(seconds)

    def untaken(self) -> str:
        """As Order.untaken()."""
        return self._order.untaken()

    def behind(self) -> list[Collective]:
        """As Order.behind()."""
        return self._order.behind()

"""The collectives of a World, as a program calls them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from zerohop.collectives.all_gather import all_gather
from zerohop.collectives.all_to_all import all_to_all, send_recv
from zerohop.collectives.blocks import Block, Flat, check_apart
from zerohop.collectives.broadcast import broadcast
from zerohop.collectives.desk import Desk, How
from zerohop.collectives.order import Collective
from zerohop.collectives.scatter import gather, scatter
from zerohop.history import ALL_GATHER, ALL_TO_ALL, BROADCAST, GATHER, SCATTER

__all__ = ["CollectiveCalls"]


class _NoReduction:
    """An attribute that is not there, with advice."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(
            f"World has no {self._name!r}: its collectives move arrays and have no reductions yet; use torch.distributed, with NCCL "
            "between GPUs, or mpi4py"
        )


class CollectiveCalls:
    """Collectives: all ranks call them and barrier() in the same order, with arrays of the same dtype and of sizes that fit.

    Arrays are contiguous, of a host (NumPy, PyTorch, JAX, ...) or a GPU, and may differ in that from rank to rank; Memory of
    the World's Endpoint saves the registration of a large one. Where a call has `parts`, or several outputs, those are a list
    of arrays, one for each rank, or one array that is cut along its first axis: evenly, or into `counts` rows (the "v"
    calls of MPI). Memory that is written must not overlap with what else the call reads or writes, but the own block of a
    rank may lie where it goes to. For each rank that it has to do with a rank keeps 257 KiB of registered memory.

    Each returns a Collective. wait: False has it run behind the program, after those called before; the arrays belong to it
    until ``.wait()`` has returned. timeout: seconds, of the whole call; default: the Endpoint's. stream: of a GPU, which the
    call waits for first, as it does for the default streams of the arrays' GPUs: outputs are complete when it returns.

    Raise TypeError, ValueError, IndexError for arguments that are wrong by themselves: nothing has happened then. A call that
    fails later is the last one of the World, on all ranks that are in it: PeerLost (a rank was lost, within 5 s), ValueError
    (ranks have called different things: within 5 s where one of them waits, else in the next call or barrier(), which then
    ends, too), TransferTimeout, CudaError, ...; later ones raise at once. A rank that had done its part before another one's
    timeout has succeeded in that call, and raises in the next one.
    """

    rank: int
    size: int
    _desk: Desk

    if not TYPE_CHECKING:
        reduce = _NoReduction()
        all_reduce = _NoReduction()
        allreduce = _NoReduction()
        reduce_scatter = _NoReduction()
        scan = _NoReduction()
        exscan = _NoReduction()

    def broadcast(
        self,
        array: Any,
        root: int = 0,
        *,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """Every rank's array becomes the root's."""
        if stream is None and wait:
            done = self._desk.at_once(BROADCAST, root, None, array, timeout)
            if done is not None:
                return done
        root, how = self._desk.rank(root), How(stream, timeout, wait)
        flat = self._desk.flat(array, "array", writable=self.rank != root)
        return self._desk.start(
            "broadcast",
            root,
            [flat],
            how,
            lambda turn: broadcast(turn, flat.whole()),
            flat.nbytes,
        )

    def scatter(
        self,
        out: Any,
        parts: Any = None,
        root: int = 0,
        *,
        counts: Iterable[int] | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """`out` becomes this rank's part of the root's `parts`, which other ranks need not give. counts: of parts."""
        if counts is None and stream is None and wait:
            done = self._desk.at_once(SCATTER, root, out, parts, timeout)
            if done is not None:
                return done
        root, how = self._desk.rank(root), How(stream, timeout, wait)
        target = self._desk.flat(out, "out", writable=True)
        flats = [target]
        blocks: list[Block] = []
        if self.rank == root:
            sources, blocks = self._desk.parts(parts, "parts", counts)
            flats += sources
            _check_own(target.whole(), blocks[root])
            check_apart([target.whole()], _moved(blocks, root, target.whole()))
        _check_dtypes(flats)
        return self._desk.start(
            "scatter",
            root,
            flats,
            how,
            lambda turn: scatter(turn, target.whole(), blocks),
        )

    def gather(
        self,
        parts: Any,
        array: Any,
        root: int = 0,
        *,
        counts: Iterable[int] | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """The root's `parts`, None elsewhere, become the arrays of all ranks. counts: of parts."""
        if counts is None and stream is None and wait:
            done = self._desk.at_once(GATHER, root, parts, array, timeout)
            if done is not None:
                return done
        root, how = self._desk.rank(root), How(stream, timeout, wait)
        source = self._desk.flat(array, "array")
        flats = [source]
        blocks: list[Block] = []
        if self.rank == root:
            targets, blocks = self._desk.parts(parts, "parts", counts, writable=True)
            flats += targets
            _check_own(source.whole(), blocks[root])
            check_apart(blocks, _moved([source.whole()], 0, blocks[root]))
        _check_dtypes(flats)
        return self._desk.start(
            "gather",
            root,
            flats,
            how,
            lambda turn: gather(turn, blocks, source.whole()),
        )

    def all_gather(
        self,
        out: Any,
        array: Any,
        *,
        counts: Iterable[int] | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """Everybody's `out` becomes the arrays of all ranks, in their order. counts: of out."""
        if counts is None and stream is None and wait:
            done = self._desk.at_once(ALL_GATHER, None, out, array, timeout)
            if done is not None:
                return done
        how = How(stream, timeout, wait)
        source = self._desk.flat(array, "array")
        flats, blocks = self._desk.parts(out, "out", counts, writable=True)
        _check_own(source.whole(), blocks[self.rank])
        check_apart(blocks, _moved([source.whole()], 0, blocks[self.rank]))
        _check_dtypes([source, *flats])
        return self._desk.start(
            "all_gather",
            None,
            [source, *flats],
            how,
            lambda turn: all_gather(turn, blocks, source.whole()),
            sum(block.nbytes for block in blocks),
        )

    def all_to_all(
        self,
        out: Any,
        parts: Any,
        *,
        counts: Iterable[int] | None = None,
        out_counts: Iterable[int] | None = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """Part `i` goes to rank `i`, and into its `out` at this rank's place. counts: of parts; out_counts: of out."""
        if counts is None and out_counts is None and stream is None and wait:
            done = self._desk.at_once(ALL_TO_ALL, None, out, parts, timeout)
            if done is not None:
                return done
        how = How(stream, timeout, wait)
        sources, mine = self._desk.parts(parts, "parts", counts)
        targets, theirs = self._desk.parts(out, "out", out_counts, writable=True)
        _check_own(theirs[self.rank], mine[self.rank])
        check_apart(theirs, _moved(mine, self.rank, theirs[self.rank]))
        _check_dtypes([*sources, *targets])
        return self._desk.start(
            "all_to_all",
            None,
            [*sources, *targets],
            how,
            lambda turn: all_to_all(turn, theirs, mine),
        )

    def send_recv(
        self,
        *,
        to: int | None = None,
        array: Any = None,
        from_: int | None = None,
        out: Any = None,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """`array` goes to one rank while `out` comes from another, or the same (MPI_Sendrecv); either pair may be left out.

        Only those ranks call it, in an order that fits: between two ranks the n-th array sent is the n-th received, and what is
        sent before a collective of all is received before it (else that one raises ValueError). Small arrays (64 KiB; four that the other rank has not taken) are on their way when it returns, larger
        ones have arrived. The first one between two ranks waits until both are in a collective or a send_recv.
        """
        if (to is None) != (array is None) or (from_ is None) != (out is None):
            raise ValueError("to= goes with array=, and from_= with out=")
        if stream is None and wait:
            done = self._desk.pair_at_once(to, array, from_, out, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        to = None if to is None else desk.rank(to, "to=")
        from_ = None if from_ is None else desk.rank(from_, "from_=")
        sends = [] if to is None else [(to, desk.flat(array, "array"))]
        receives = [] if from_ is None else [(from_, desk.flat(out, "out", writable=True))]
        if (to == self.rank) != (from_ == self.rank):
            raise ValueError("what a rank sends to itself it receives in the same call")
        if sends and receives and to == self.rank:
            _check_own(receives[0][1].whole(), sends[0][1].whole())
            _check_dtypes([sends[0][1], receives[0][1]])
        check_apart([flat.whole() for _, flat in receives], [flat.whole() for _, flat in sends])
        return desk.start(
            "send_recv",
            None,
            [flat for _, flat in (*sends, *receives)],
            how,
            lambda turn: send_recv(
                turn,
                [desk.sending(turn, rank, flat.whole()) for rank, flat in sends],
                [desk.receiving(turn, rank, flat.whole()) for rank, flat in receives],
            ),
        )


def _check_own(one: Block, other: Block) -> None:
    if one.nbytes != other.nbytes:
        raise ValueError(
            f"{one.flat.what} has {one.nbytes} bytes, this rank's part of {other.flat.what} {other.nbytes}"
        )


def _check_dtypes(flats: list[Flat]) -> None:
    for flat in flats:
        if flat.dtype != flats[0].dtype:
            raise ValueError(
                f"{flats[0].what} is of {flats[0].dtype}, {flat.what} of {flat.dtype}: one collective has one dtype"
            )


def _moved(blocks: list[Block], own: int, place: Block) -> list[Block]:
    """Without this rank's own if that lies where it goes to."""
    if blocks[own].is_at(place):
        return blocks[:own] + blocks[own + 1 :]
    return blocks

"""The collectives of a World, as a program calls them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zerohop._world.history import ALL_GATHER, ALL_TO_ALL, BROADCAST, GATHER, SCATTER
from zerohop.collectives.blocks import Block, check_apart, check_dtypes, check_own, moved
from zerohop.collectives.desk import Desk, How
from zerohop.collectives.exchange import Blocks
from zerohop.collectives.help import collective
from zerohop.collectives.order import Collective
from zerohop.collectives.views import are_even, view_of, views_of_parts


class CollectiveCalls:
    """Collectives: all ranks call them and barrier() in the same order, with arrays of the same dtype and of matching sizes.

    Arrays are contiguous, of a host (NumPy, PyTorch, JAX, ...) or a GPU, and ranks may differ in that. Memory of
    the World's Endpoint saves the registration of a large array. Calls with `parts`, or several outputs, take a list
    of arrays, one per rank, or one array that is split along its first axis: evenly, or into `counts` rows (the "v"
    calls of MPI). Memory that is written must not overlap with other memory of the call, except that the own block of a
    rank may lie at its destination. A rank keeps 257 KiB of registered memory for each rank that it communicates with, and for
    reductions as much as one has taken: a few MiB, and 64 MiB more for large arrays of GPUs that go across hosts.

    Each returns a Collective. wait: False runs it in the background, after earlier calls; the arrays belong to it
    until ``.wait()`` has returned. timeout: seconds, for the whole call; default: the Endpoint's. stream: a GPU stream that the
    call waits for first, as it does for the default streams of the arrays' GPUs; outputs are complete when it returns. Where kernels
    carry out the call (``world.gpu_collectives``) it takes its place in the stream instead, and returns at once.

    They raise TypeError, ValueError, IndexError for wrong arguments; then nothing has happened. A call that
    fails later is the last one of the World, on all of its ranks: PeerLost (a rank was lost, within 5 s), ValueError
    (ranks have called different things: within 5 s if one of them waits, else in the next call or barrier(), which then
    ends, too), TransferTimeout, CudaError, ...; later calls raise at once. A rank that had done its part before another rank's
    timeout has succeeded in that call, and raises in the next one.
    """

    rank: int
    size: int
    _desk: Desk

    @collective
    def broadcast(
        self,
        array: Any,
        root: int = 0,
        *,
        stream: Any = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Collective:
        """Copies the root's array to every rank.

        array: contiguous, of the same dtype and size on all ranks; written, except on the root.
        root: the rank whose array it is.
        """
        if stream is None and wait:
            done = self._desk.at_once(BROADCAST, root, None, array, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        root = desk.rank(root)
        if stream is not None and desk.gpus.takes(array):
            view = view_of(array, "array", written=self.rank != root)
            ends = ([view], []) if self.rank == root else ([], [view])
            return desk.by_kernels(BROADCAST, root, *ends, how)
        flat = desk.flat(array, "array", writable=self.rank != root)
        return desk.start(
            "broadcast",
            root,
            [flat],
            how,
            Blocks([], [flat.whole()]),
            flat.nbytes,
        )

    @collective
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
        """Copies this rank's part of the root's `parts` into `out`.

        out: contiguous, of the size of this rank's part; written.
        parts: on the root a list of arrays, one for each rank, or one array that is split along its first axis; None elsewhere.
        root: the rank whose parts they are.
        counts: on the root, rows of each part of one array, one number for each rank; default: equal parts.
        """
        if counts is None and stream is None and wait:
            done = self._desk.at_once(SCATTER, root, out, parts, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        root = desk.rank(root)
        if stream is not None and counts is None and desk.gpus.takes(out):
            given = views_of_parts(parts, "parts", self.size) if self.rank == root else []
            return desk.by_kernels(SCATTER, root, given, [view_of(out, "out", written=True)], how)
        target = desk.flat(out, "out", writable=True)
        flats, blocks = [target], list[Block]()
        if self.rank == root:
            sources, blocks = desk.parts(parts, "parts", counts)
            flats += sources
            check_dtypes(flats)
            check_own(target.whole(), blocks[root])
            check_apart([target.whole()], moved(blocks, root, target.whole()))
        return desk.start("scatter", root, flats, how, Blocks([target.whole()], blocks))

    @collective
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
        """Copies the arrays of all ranks into the root's `parts`.

        parts: written; on the root a list of arrays, one for each rank, or one array that is split along its first axis; None elsewhere.
        array: contiguous, of the size of this rank's part.
        root: the rank that gets them.
        counts: on the root, rows of each part of one array, one number for each rank; default: equal parts.
        """
        if counts is None and stream is None and wait:
            done = self._desk.at_once(GATHER, root, parts, array, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        root = desk.rank(root)
        if stream is not None and counts is None and desk.gpus.takes(array):
            is_root = self.rank == root
            into = views_of_parts(parts, "parts", self.size, written=True) if is_root else []
            return desk.by_kernels(GATHER, root, [view_of(array, "array")], into, how)
        source = desk.flat(array, "array")
        flats, blocks = [source], list[Block]()
        if self.rank == root:
            targets, blocks = desk.parts(parts, "parts", counts, writable=True)
            flats += targets
            check_dtypes(flats)
            check_own(source.whole(), blocks[root])
            check_apart(blocks, moved([source.whole()], 0, blocks[root]))
        return desk.start("gather", root, flats, how, Blocks(blocks, [source.whole()]))

    @collective
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
        """Copies the arrays of all ranks, in order, into `out` of every rank.

        out: written; a list of arrays, one for each rank, or one array that is split along its first axis.
        array: contiguous, of the size of this rank's part.
        counts: rows of each part of one array, one number for each rank; default: equal parts.
        """
        if counts is None and stream is None and wait:
            done = self._desk.at_once(ALL_GATHER, None, out, array, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        if stream is not None and counts is None and desk.gpus.takes(array, out):
            into = views_of_parts(out, "out", self.size, written=True)
            if are_even(into):
                return desk.by_kernels(ALL_GATHER, None, [view_of(array, "array")], into, how)
        source = desk.flat(array, "array")
        flats, blocks = desk.parts(out, "out", counts, writable=True)
        check_dtypes([source, *flats])
        check_own(source.whole(), blocks[self.rank])
        check_apart(blocks, moved([source.whole()], 0, blocks[self.rank]))
        return desk.start(
            "all_gather",
            None,
            [source, *flats],
            how,
            Blocks(blocks, [source.whole()]),
            sum(block.nbytes for block in blocks),
        )

    @collective
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
        """Copies part `i` to rank `i`, into its `out` at this rank's place.

        out: written, by place of the rank that a part comes from: a list of arrays, one for each rank, or one array that is split along its first axis.
        parts: the same, by rank that a part goes to.
        counts, out_counts: rows of each part of one array, in `parts` and `out`, one number for each rank; default: equal parts.
        """
        if counts is None and out_counts is None and stream is None and wait:
            done = self._desk.at_once(ALL_TO_ALL, None, out, parts, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        lists = isinstance(parts, (list, tuple)) or isinstance(out, (list, tuple))
        is_even = counts is None and out_counts is None and not lists
        if stream is not None and is_even and desk.gpus.takes(parts, out):
            given = views_of_parts(parts, "parts", self.size)
            into = views_of_parts(out, "out", self.size, written=True)
            return desk.by_kernels(ALL_TO_ALL, None, given, into, how)
        sources, mine = desk.parts(parts, "parts", counts)
        targets, theirs = desk.parts(out, "out", out_counts, writable=True)
        flats = [*sources, *targets]
        check_dtypes(flats)
        check_own(theirs[self.rank], mine[self.rank])
        check_apart(theirs, moved(mine, self.rank, theirs[self.rank]))
        return desk.start("all_to_all", None, flats, how, Blocks(theirs, mine))

    @collective
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
        """Sends `array` to one rank while `out` comes from another, or the same (MPI_Sendrecv); either pair may be left out.

        Only those ranks call it, in matching order: between two ranks the n-th array sent is the n-th received, and an array
        sent before a collective of all is received before it (else that one raises ValueError). Small arrays (64 KiB; four that
        the other rank has not taken) are on their way when it returns, larger
        ones have arrived, or on one host at least all but their last 256 KiB. The first one between two ranks waits until
        both are in a collective or a send_recv, with any rank.

        to, array: a rank, and the contiguous array that it gets.
        from_, out: a rank, and the contiguous array that its array is written to; of the same dtype and size.
        """
        if (to is None) != (array is None) or (from_ is None) != (out is None):
            raise ValueError("to= needs array=, and from_= needs out=")
        if stream is None and wait:
            done = self._desk.pair_at_once(to, array, from_, out, timeout)
            if done is not None:
                return done
        desk, how = self._desk, How(stream, timeout, wait)
        to = None if to is None else desk.rank(to, "to=")
        from_ = None if from_ is None else desk.rank(from_, "from_=")
        if (to == self.rank) != (from_ == self.rank):
            raise ValueError("a rank that sends to itself must receive in the same call")
        sends = [] if to is None else [desk.flat(array, "array")]
        receives = [] if from_ is None else [desk.flat(out, "out", writable=True)]
        targets, sources = ([each.whole() for each in of] for of in (receives, sends))
        if sends and to == self.rank:
            check_dtypes([*sends, *receives])
            check_own(targets[0], sources[0])
        check_apart(targets, sources)
        blocks = Blocks(targets, sources, (to, from_))
        return desk.start("send_recv", None, [*sends, *receives], how, blocks)

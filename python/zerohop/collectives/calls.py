"""The collectives of a World, as a program calls them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from zerohop._world.history import ALL_GATHER, ALL_TO_ALL, BROADCAST, GATHER, SCATTER
from zerohop.collectives.desk import Desk, How
from zerohop.collectives.order import Collective
from zerohop.collectives.start import (
    start_all_gather,
    start_all_to_all,
    start_broadcast,
    start_gather,
    start_scatter,
    start_send_recv,
)


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
        return start_broadcast(self._desk, array, root, How(stream, timeout, wait))

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
        return start_scatter(self._desk, out, parts, root, counts, How(stream, timeout, wait))

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
        return start_gather(self._desk, parts, array, root, counts, How(stream, timeout, wait))

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
        return start_all_gather(self._desk, out, array, counts, How(stream, timeout, wait))

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
        return start_all_to_all(self._desk, out, parts, counts, out_counts, how)

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
        how = How(stream, timeout, wait)
        return start_send_recv(self._desk, to, array, from_, out, how)

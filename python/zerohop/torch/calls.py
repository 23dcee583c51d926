"""The calls of a process group, carried out by a World of its ranks, with the names and arguments of torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop.collectives import Collective
from zerohop.errors import Error
from zerohop.torch import sparse
from zerohop.torch.any_source import AnySource, AnySourceWork
from zerohop.torch.foreign import torch
from zerohop.torch.messages import GOODBYE, Messages
from zerohop.torch.reduce_ops import reduction
from zerohop.torch.tensors import check_parts, follow_current_stream, only, read, reduced, written
from zerohop.torch.works import (
    CollectiveWork,
    MessageWork,
    StreamWork,
    Work,
    Works,
    named,
    of_message,
)
from zerohop.world import World

_MOST_TAG = 2**31 - 1  # PyTorch uses a C++ int


class Calls:
    """seconds: bound of each call without a timeout in its options."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world, self.seconds = world, seconds
        self._stream: Any = None  # of calls that kernels carry out beside the current stream
        self._messages = Messages(world)
        self.any_source = AnySource(world, self._messages)

    # --- all ranks ---

    def broadcast(self, tensors: Sequence[Any], opts: Any) -> Work:
        tensor = only(tensors, "broadcast")
        root = opts.rootRank
        array = written(tensor)  # on the root, too, so that all ranks refuse alike
        return self._start(opts, tensors, lambda **how: self._world.broadcast(array, root, **how))

    def scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any) -> Work:
        out, root = written(only(outputs, "scatter")), opts.rootRank
        parts = None
        if root == self._world.rank:
            parts = [read(each) for each in only(inputs, "scatter")]
        return self._start(
            opts, outputs, lambda **how: self._world.scatter(out, parts, root, **how)
        )

    def gather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any) -> Work:
        array, root = read(only(inputs, "gather")), opts.rootRank
        parts, tensors = None, []
        if root == self._world.rank:
            tensors = only(outputs, "gather")
            parts = [written(each) for each in tensors]
        return self._start(
            opts,
            tensors,
            lambda **how: self._world.gather(parts, array, root, **how),
            given=[array],
        )

    def allgather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any) -> Work:
        array, tensors = read(only(inputs, "all_gather")), only(outputs, "all_gather")
        out = [written(each) for each in tensors]
        return self._start(opts, tensors, lambda **how: self._world.all_gather(out, array, **how))

    def all_gather_single(self, output: Any, array: Any, opts: Any) -> Work:
        check_parts("all_gather_into_tensor", output, array, self._world.size)
        out, source = written(output).view(-1), read(array)
        return self._start(opts, [output], lambda **how: self._world.all_gather(out, source, **how))

    def all_gather_single_coalesced(
        self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any
    ) -> Work:
        pairs = zip(outputs, inputs, strict=True)
        return Works([self.all_gather_single(*pair, opts) for pair in pairs], self.seconds)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any
    ) -> Work:
        """outputs: for each rank a list with as many tensors as inputs."""
        pairs = zip(zip(*outputs, strict=True), inputs, strict=True)
        return Works([self.allgather([out], [each], opts) for out, each in pairs], self.seconds)

    def all_to_all_single(
        self,
        output: Any,
        array: Any,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> Work:
        out, parts = written(output), read(array)
        self._check_splits("output_split_sizes", output_splits, output)
        self._check_splits("input_split_sizes", input_splits, array)
        counts, out_counts = input_splits or None, output_splits or None
        return self._start(
            opts,
            [output],
            lambda **how: self._world.all_to_all(
                out, parts, counts=counts, out_counts=out_counts, **how
            ),
            by_kernels=not (counts or out_counts),
        )

    def _check_splits(self, name: str, splits: Sequence[int], tensor: Any) -> None:
        if tensor.dim() == 0:
            raise ValueError("all_to_all_single: a tensor without rows cannot be split")
        rows, size = tensor.shape[0], self._world.size
        if splits and (len(splits) != size or min(splits) < 0 or sum(splits) != rows):
            raise ValueError(
                f"all_to_all_single: {name} must be {size} numbers, one per rank, with the sum {rows}, the rows of the "
                f"tensor, not {list(splits)}"
            )
        if not splits and rows % size != 0:
            raise ValueError(
                f"all_to_all_single: {rows} rows cannot be shared evenly by {size} ranks: give {name}"
            )

    def alltoall(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any) -> Work:
        out, parts = [written(each) for each in outputs], [read(each) for each in inputs]
        return self._start(
            opts,
            outputs,
            lambda **how: self._world.all_to_all(out, parts, **how),
            by_kernels=False,
        )

    # --- reductions ---

    def allreduce(self, tensors: Sequence[Any], opts: Any) -> Work:
        tensor = only(tensors, "all_reduce")
        if tensor.is_sparse:
            return sparse.all_reduce(self.allgather, tensor, opts, self._world.size, self.seconds)
        array, how = reduced(tensor), reduction(opts.reduceOp)
        return self._start(
            opts, tensors, lambda **more: self._world.all_reduce(array, **how, **more)
        )

    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any) -> Work:
        return Works([self.allreduce([each], opts) for each in tensors], self.seconds)

    def reduce(self, tensors: Sequence[Any], opts: Any) -> Work:
        tensor, root, how = only(tensors, "reduce"), opts.rootRank, reduction(opts.reduceOp)
        array = reduced(tensor) if root == self._world.rank else read(tensor)
        return self._start(
            opts, tensors, lambda **more: self._world.reduce(array, root, **how, **more)
        )

    def reduce_scatter(
        self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any
    ) -> Work:
        out, how = written(only(outputs, "reduce_scatter")), reduction(opts.reduceOp)
        parts = [read(each) for each in only(inputs, "reduce_scatter")]
        return self._start(
            opts, outputs, lambda **more: self._world.reduce_scatter(out, parts, **how, **more)
        )

    def reduce_scatter_single(self, output: Any, array: Any, opts: Any) -> Work:
        check_parts("reduce_scatter_tensor", array, output, self._world.size)
        out, parts, how = written(output).view(-1), read(array).view(-1), reduction(opts.reduceOp)
        return self._start(
            opts, [output], lambda **more: self._world.reduce_scatter(out, parts, **how, **more)
        )

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any
    ) -> Work:
        pairs = zip(outputs, inputs, strict=True)
        return Works([self.reduce_scatter_single(*pair, opts) for pair in pairs], self.seconds)

    def barrier(self, opts: Any) -> Work:
        """All-gathers one byte per rank, so it follows earlier collectives, as with NCCL and gloo."""
        world = self._world
        out = torch.empty(world.size, dtype=torch.uint8, device="cpu")
        own = out[world.rank : world.rank + 1]
        return self._start(opts, [], lambda **how: world.all_gather(out, own, **how), "barrier")

    def _start(
        self,
        opts: Any,
        outputs: Sequence[Any],
        call: Callable[..., Collective],
        what: str = "",
        given: Sequence[Any] = (),
        by_kernels: bool = True,
    ) -> Work:
        """Runs it in this thread if the program waits anyway.

        given: input tensors, where there may be no output. by_kernels: whether kernels can carry it out.
        """
        timeout = opts.timeout.total_seconds()  # negative: none
        seconds = timeout if timeout > 0 else self.seconds
        wait = not getattr(opts, "asyncOp", True)
        on_gpu = next((each for each in (*outputs, *given) if each.is_cuda), None)
        if on_gpu is not None:
            if by_kernels and self._world.has_gpu_kernels:
                return self._enqueue(
                    on_gpu.device, (*outputs, *given), outputs, call, seconds, wait
                )
            follow_current_stream(on_gpu)
        collective = named(what, lambda: call(timeout=seconds, wait=wait))
        return CollectiveWork(collective, outputs, seconds, what)

    def _enqueue(
        self,
        device: Any,
        tensors: Sequence[Any],
        outputs: Sequence[Any],
        call: Callable[..., Collective],
        seconds: float,
        wait: bool,
    ) -> Work:
        """A call that kernels may carry out: in the current stream, or beside it, so that other work overlaps."""
        current = torch.cuda.current_stream(device)
        if wait:
            collective = call(timeout=seconds, stream=current)
            if collective.enqueued:
                return StreamWork(collective, call, outputs, seconds, current)
            return CollectiveWork(collective, outputs, seconds, "")
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(current)
        collective = call(timeout=seconds, stream=self._stream, wait=False)
        if not collective.enqueued:
            return CollectiveWork(collective, outputs, seconds, "")
        for tensor in tensors:
            tensor.record_stream(self._stream)
        event = self._stream.record_event()
        return StreamWork(collective, call, outputs, seconds, self._stream, event)

    # Names before PyTorch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    alltoall_base = all_to_all_single
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # --- two ranks ---

    def send(self, tensors: Sequence[Any], rank: int, tag: int) -> Work:
        array = follow_current_stream(read(only(tensors, "send")))
        text = f"send to rank {rank} of {self._world.name!r}, tag {tag}"
        self._check(text, rank, tag)
        transfer = of_message(text, lambda: self._messages.send(rank, array, tag, self.seconds))
        return MessageWork(text, rank, transfer, [], self.seconds, self._messages.look_at)

    def recv(self, tensors: Sequence[Any], rank: int, tag: int) -> Work:
        array = follow_current_stream(written(only(tensors, "recv")))
        text = f"recv from rank {rank} of {self._world.name!r}, tag {tag}"
        self._check(text, rank, tag)
        receive = self.any_source.receive
        transfer = of_message(text, lambda: receive(rank, array, tag, self.seconds))
        look_at = self._messages.look_at
        return MessageWork(text, rank, transfer, tensors, self.seconds, look_at, array.nbytes)

    def recv_anysource(self, tensors: Sequence[Any], tag: int) -> Work:
        """Receives from the rank whose message comes first."""
        tensor = only(tensors, "recv")
        array = follow_current_stream(written(tensor))
        text = f"recv from any rank of {self._world.name!r}, tag {tag}"
        _check_tag(text, tag)
        if self._world.size == 1:
            raise ValueError(f"{text}: the group has no other rank")
        work = AnySourceWork(self.any_source, text, tensor, array, tag, self.seconds)
        self.any_source.post(work)
        return work

    def _check(self, text: str, rank: int, tag: int) -> None:
        _check_tag(text, tag)
        if rank == self._world.rank:
            raise ValueError(f"{text}: this is the rank itself; copy the tensor")

    def say_goodbye(self, seconds: float) -> None:
        """Returns when the ranks that this one has met leave, too, or are lost, or on timeout.

        A receiver may be gone before its sender knows that its message has arrived, and the sender would report a loss.
        """
        deadline, words = Deadline(seconds), []
        for rank in self.any_source.senders.union(self._world.connected()):
            with suppress(Error):
                words.append(self.post_word(rank, GOODBYE, 0.0))
                words.append(self.hear_word(rank, GOODBYE, 0.0))
        for word in words:
            with suppress(Error):
                word.wait(deadline.left)

    # --- empty messages between the groups of two ranks ---

    def post_word(self, rank: int, tag: int, seconds: float) -> _core.Transfer:
        """seconds: to connect."""
        return self._messages.send(rank, _nothing(), tag, seconds)

    def hear_word(self, rank: int, tag: int, seconds: float) -> _core.Transfer:
        return self.any_source.receive(rank, _nothing(), tag, seconds)

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def size(self) -> int:
        return self._world.size

    @property
    def name(self) -> str:
        return self._world.name


def _nothing() -> Any:
    return torch.empty(0, dtype=torch.uint8, device="cpu")


def _check_tag(text: str, tag: int) -> None:
    if not 0 <= tag <= _MOST_TAG:
        raise ValueError(f"{text}: tags go from 0 to 2**31 - 1")

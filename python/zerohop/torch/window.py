"""Windows: one-sided access to a tensor of every rank of a group (``torch.distributed._new_window``, PyTorch 2.14)."""

from __future__ import annotations

from typing import Any

from zerohop._world.deadline import Deadline
from zerohop.errors import Error, PeerLost, TransferTimeout
from zerohop.torch.advice import advised
from zerohop.torch.exposed import Exposed
from zerohop.torch.foreign import c10d
from zerohop.torch.messages import Messages
from zerohop.torch.tensors import follow_current_stream, read, written
from zerohop.torch.works import MessageWork, Work, of_message
from zerohop.world import World


class Window:
    """Made by ``group.new_window(tensor)``; has the methods of PyTorch's Window, which a Python backend cannot derive from.

    put() places data, and does not signal. A signal is seen after all puts to that rank that were called before it. Signals are counted:
    each wait_signal() takes one. The tensors may differ in size, and live in host or GPU memory. With async_op=False a call returns when
    it is done, else its Work tells. seconds: of calls without a timeout.
    """

    def __init__(self, world: World, name: str, seconds: float) -> None:
        self._world, self._name, self._seconds = world, name, seconds
        self._look_at = Messages(world).look_at
        self._exposed: Exposed | None = None
        self._tensor: Any = None

    def tensor_register(self, tensor: Any, owning: bool = True) -> None:
        """Lets all ranks write to it; all ranks call this. owning: is always so. Raises ValueError (not contiguous), Error, TransferTimeout."""
        if self._exposed is not None:
            raise Error(f"{self._name} has a tensor already: call tensor_deregister() first")
        array = follow_current_stream(written(tensor))
        self._exposed = Exposed(self._world, self._name, array, str(tensor.dtype), self._seconds)
        self._tensor = tensor

    def tensor_deregister(self) -> None:
        """Ends that; all ranks call this, and it returns when all have. Raises the errors of puts and signals that nobody waited for."""
        exposed = self._open()
        self._exposed = self._tensor = None
        exposed.end(self._seconds)

    def put(
        self,
        tensor: Any,
        dst_rank: int,
        target_offset_nelems: int,
        async_op: bool,
        opts: Any = None,
    ) -> Work:
        """Writes it to the tensor of that rank, from that element on. Raises ValueError (dtype), IndexError (rank, offset)."""
        exposed, seconds = self._open(), self._timeout(opts)
        text = f"put to rank {dst_rank} of {self._name}"
        array, dtype = follow_current_stream(read(tensor)), str(tensor.dtype)
        offset = target_offset_nelems * tensor.element_size()
        transfer = of_message(text, lambda: exposed.put(dst_rank, array, dtype, offset, seconds))
        work = MessageWork(text, dst_rank, transfer, [], seconds, self._look_at)
        return _done(work, seconds, async_op)

    def signal(self, peer_rank: int, async_op: bool, opts: Any = None) -> Work:
        """Adds one to the signals from this rank there."""
        exposed, seconds = self._open(), self._timeout(opts)
        text = f"signal to rank {peer_rank} of {self._name}"
        transfer = of_message(text, lambda: exposed.signal(peer_rank, seconds))
        work = MessageWork(text, peer_rank, transfer, [], seconds, self._look_at)
        return _done(work, seconds, async_op)

    def wait_signal(self, peer_rank: int, async_op: bool, opts: Any = None) -> Work:
        """Takes one signal from that rank. After TransferTimeout of a call with async_op=False it takes none."""
        exposed, seconds = self._open(), self._timeout(opts)
        text = f"wait_signal of rank {peer_rank} of {self._name}"
        ticket = of_message(text, lambda: exposed.take_ticket(peer_rank, seconds))
        work = SignalWork(text, exposed, peer_rank, ticket, seconds, self._look_at)
        try:
            return _done(work, seconds, async_op)
        except BaseException:
            exposed.give_back(peer_rank, ticket)
            raise

    def map_remote_tensor(self, rank: int) -> Any:
        """The own tensor. Raises ValueError for another rank: its memory is written by put(), and not mapped here."""
        self._open()
        if rank != self._world.rank:
            raise ValueError(
                f"{self._name}: the tensor of rank {rank} cannot be mapped here: put() writes to it"
            )
        return self._tensor

    def get_attr(self, peer_rank: int) -> Any:
        """UNIFIED for the own rank, else SEPARATE: see map_remote_tensor(). Raises NotImplementedError before PyTorch 2.14."""
        if not hasattr(c10d, "WindowAttr"):
            raise NotImplementedError("the attributes of a window need PyTorch 2.14")
        attr, kinds = c10d.WindowAttr(), c10d.WindowAccessType
        attr.access_type = kinds.UNIFIED if peer_rank == self._world.rank else kinds.SEPARATE
        return attr

    def close(self) -> None:
        """The group ends: this rank's memory cannot be written any more."""
        exposed, self._exposed, self._tensor = self._exposed, None, None
        if exposed is not None:
            exposed.close()

    def __repr__(self) -> str:
        what = "no tensor"
        if self._tensor is not None:
            what = f"{tuple(self._tensor.shape)} of {self._tensor.dtype}"
        return f"<zerohop.torch Window {self._name}: {what}>"

    def _open(self) -> Exposed:
        if self._exposed is None:
            raise Error(f"{self._name} has no tensor: call tensor_register() on all ranks")
        return self._exposed

    def _timeout(self, opts: Any) -> float:
        given = 0.0 if opts is None else float(opts.timeout.total_seconds())
        return given if given > 0 else self._seconds  # negative: none


class SignalWork(Work):
    """ticket: which signal of that rank it waits for, counted from 1."""

    def __init__(
        self, text: str, exposed: Exposed, rank: int, ticket: int, seconds: float, look_at: Any
    ) -> None:
        super().__init__([], seconds)
        self._text, self._exposed, self._rank, self._ticket = text, exposed, rank, ticket
        self._look_at = look_at

    def is_completed(self) -> bool:
        return self._has_come(0.0)

    def _about(self) -> str:
        has_come = self._exposed.has_seen(self._rank, self._ticket)
        return f"{self._text}, {'done' if has_come else 'under way'}"

    def _has_come(self, seconds: float) -> bool:
        return self._exposed.arrived(self._rank, self._ticket, seconds)

    def _join(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        while not self._has_come(deadline.slice):
            if deadline.passed:
                raise TransferTimeout(f"{self._text}: no signal came in time")
            lost = None if self._rank == self._exposed.rank else self._look_at(self._rank)
            if lost is not None and not self._has_come(0.0):
                raise advised(PeerLost(f"{self._text}: {lost}"))


def _done(work: Work, seconds: float, async_op: bool) -> Work:
    if not async_op:
        work._join(seconds)
    return work

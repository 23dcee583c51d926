"""Collectives of GPU arrays that kernels of the ranks' GPUs carry out, without the CPUs.

All ranks must agree before the first: once every rank has passed a GPU array to the same all_reduce or reduce_scatter, which went
by messages, they exchange the addresses of their arenas, and map them. Nothing else is ever agreed between CPUs: a kernel shows
the others which call it is, and where in a segment its arrays lie (cpp/gpu/group_call.hpp).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from zerohop import _core
from zerohop._world.deadline import Deadline
from zerohop._world.history import KINDS, NO_ROOT
from zerohop.collectives.blocks import Flat
from zerohop.collectives.order import Collective
from zerohop.collectives.views import check_views
from zerohop.errors import CudaError, Error, RouteUnavailable, TransferTimeout

if TYPE_CHECKING:
    from zerohop._world.membership import Membership

WAYS = ("auto", "kernels", "messages")
# Completes an array of one row from each rank.
Gather: TypeAlias = Callable[[np.ndarray], None]
_NOTE = 4096  # bytes of what ranks exchange at the set-up
_TELL = 0.5  # seconds to tell the others that this rank has left
_LATE = 1.0  # seconds, more than its kernel, until a wait for a call gives up


def check_way(wanted: str) -> None:
    """Raises ValueError."""
    if wanted not in WAYS:
        raise ValueError(f"gpu_collectives must be one of {', '.join(WAYS)}, not {wanted!r}")


class _Offer(NamedTuple):
    """why: it has no arena; then the rest is empty."""

    why: str
    gpu: str = ""  # its PCI address
    arena: str = ""  # its RemoteMemory


class GpuGroup:
    """Of one World. wanted: one of WAYS."""

    def __init__(self, membership: Membership, wanted: str) -> None:
        self._membership, self._wanted = membership, wanted
        self._group: _core.GpuGroup | None = None
        self._new: _core.GpuGroup | None = None  # during the set-up
        self._arena: Any = None
        self.device = ""  # of this rank, once the group exists
        self._why = self._refusal()
        if self._why and wanted == "kernels" and membership.size > 1:
            raise RouteUnavailable(f'gpu_collectives="kernels" cannot be: {self._why}')
        self._settled = bool(self._why)
        self._settling: Collective | None = None
        self._far_arenas: list[tuple[_core.Peer, _core.RemoteMemory]] = []  # of the other ranks
        self._under_way: deque[tuple[_core.Transfer, Any]] = deque()  # with the arrays they use

    def _refusal(self) -> str:
        """Why there can be no group, as far as this rank knows alone."""
        size = self._membership.size
        if self._wanted == "messages":
            return 'gpu_collectives="messages"'
        if size == 1:
            return "the World has one rank"
        if size > _core.GpuGroup.RANKS:
            return f"the World has {size} ranks, and a group of GPUs {_core.GpuGroup.RANKS} at most"
        if not _core.has_kernels():
            return "this build of zerohop has no GPU kernels: there was no nvcc"
        return ""

    @property
    def ready(self) -> bool:
        """Whether a later call with GPU arrays is carried out by kernels."""
        settling = self._settling
        if settling is not None:
            settling.join()
            if self._settling is settling:
                self._settling = None
        return self._group is not None

    @property
    def text(self) -> str:
        """By what the collectives of GPU arrays go, and why."""
        if self._group is not None:
            return f"kernels of {self.device}"
        why = self._why or "no all_reduce or reduce_scatter of GPU arrays by all ranks yet"
        return f"messages: {why}"

    # --- set-up ---

    def proposes(self, flats: Sequence[Flat]) -> bool:
        """Whether this rank, in a call with these arrays, offers to set up a group."""
        return not self._settled and _gpu_of(flats) != ""

    def settles_with(self, collective: Collective) -> None:
        """That call may set up a group: the next one with GPU arrays waits for it, so that all ranks decide alike how it goes."""
        self._settling = collective

    def settle(self, flats: Sequence[Flat], deadline: Deadline, gather: Gather) -> None:
        """All ranks call it in the same call, with its arrays. Raises RouteUnavailable where kernels were demanded."""
        try:
            self._settle(_gpu_of(flats), deadline, gather)
        finally:
            self._settled, self._new = True, None
            if self._group is None:
                self._arena = None
                self._far_arenas.clear()

    def decline(self, why: str) -> None:
        """There will be no group, as all ranks know. Raises RouteUnavailable where kernels were demanded."""
        self._why, self._settled = why, True
        if self._wanted == "kernels":
            raise RouteUnavailable(f'gpu_collectives="kernels" cannot be: {why}')

    def _settle(self, device: str, deadline: Deadline, gather: Gather) -> None:
        offer = json.dumps(self._offer(device, deadline))
        offers = [_Offer(*json.loads(note)) for note in self._gathered(offer, gather)]
        why = next((each.why for each in offers if each.why), "") or self._shared(offers)
        group = None
        if not why:
            try:
                group = self._made(offers, deadline)
            except (RouteUnavailable, CudaError, TransferTimeout) as error:
                why = str(error)
        found = self._gathered(why, gather)
        reasons = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text]
        if reasons:
            self.decline(reasons[0])
        else:
            self._group, self.device = group, device

    def _gathered(self, text: str, gather: Gather) -> list[str]:
        """Sends a text to all other ranks. Returns those of all, by rank."""
        notes = np.zeros((self._membership.size, _NOTE), np.uint8)
        said = np.frombuffer(text.encode()[:_NOTE], np.uint8)
        notes[self._membership.rank, : said.nbytes] = said
        gather(notes)
        return [note.tobytes().rstrip(b"\0").decode(errors="replace") for note in notes]

    def _offer(self, device: str, deadline: Deadline) -> _Offer:
        membership = self._membership
        nbytes = _core.GpuGroup.NBYTES[membership.size]
        try:
            self._arena = membership.endpoint.empty(nbytes, np.uint8, device=device)
            self._new = _core.GpuGroup(
                membership.endpoint,
                membership.rank,
                membership.size,
                self._arena,
                repr(membership.name),
                deadline.left,
            )
        except (Error, ValueError) as error:
            return _Offer(str(error))
        arena = b64encode(self._arena.remote.to_bytes()).decode()
        return _Offer("", _pci_of(device), arena)

    def _shared(self, offers: Sequence[_Offer]) -> str:
        """Why kernels would be slow: GPUs that ranks share."""
        if self._wanted == "kernels":
            return ""
        gpus = [each.gpu for each in offers]
        for rank, gpu in enumerate(gpus):
            if gpus.index(gpu) != rank:
                return (
                    f"ranks {gpus.index(gpu)} and {rank} share the GPU {gpu}, where kernels that wait for each other take turns; "
                    'gpu_collectives="kernels" insists'
                )
        return ""

    def _made(self, offers: Sequence[_Offer], deadline: Deadline) -> _core.GpuGroup:
        membership, new = self._membership, self._new
        assert new is not None
        for rank, offer in enumerate(offers):
            if rank != membership.rank:
                arena = _core.RemoteMemory.from_bytes(b64decode(offer.arena))
                peer = membership.peer(rank, deadline)
                new.meet(rank, peer, arena, deadline.left)
                self._far_arenas.append((peer, arena))
        return new

    # --- calls ---

    def takes(self, *arrays: Any) -> bool:
        """Whether kernels carry out a call with these arrays; None is no array."""
        may = self._group is not None or self._settling is not None
        return may and any(_on_gpu(array) for array in arrays) and self.ready

    def call(
        self,
        kind: int,
        root: int | None,
        sources: Sequence[_core.ArrayView],
        targets: Sequence[_core.ArrayView],
        stream: Any,
        timeout: float | None,
        wait: bool,
        failed: Callable[[str, BaseException], BaseException],
        op: int = 0,
        factor: float = 1.0,
    ) -> Collective:
        """sources, targets: a block, or one for each rank. failed: called with what ended the call."""
        membership, group = self._membership, self._group
        if group is None:  # by another thread, since takes()
            raise Error(f"the World {membership.name!r} is closed")
        views = [*sources, *targets]
        for view in views:
            if view.device != self.device:
                raise ValueError(
                    f"this World's collectives of GPU arrays have been set up on {self.device}, on this rank, and an array lies "
                    f"on {view.device}: move it there"
                )
        check_views(sources, targets, membership.rank)
        seconds = membership.bound(timeout)
        text = f"{KINDS[kind]} of {membership.name!r}"
        if not views or not views[0].nbytes:
            return Collective(text, seconds, True)
        part = None
        if views[0].nbytes * (membership.size - 1) > _core.GpuGroup.PACKET_BYTES[membership.size]:
            part = membership.gpu_segments.part_with(views[0], membership, Deadline(seconds))
        try:
            transfer = group.call(
                kind,
                NO_ROOT if root is None else root,
                op,
                factor,
                views[0].dtype,
                views[0].nbytes,
                [view.address for view in sources],
                [view.address for view in targets],
                stream,
                seconds,
                part,
            )
        except (RouteUnavailable, CudaError):  # of this call alone
            raise
        except Error as error:
            raise failed(text, error) from None
        if transfer is None:
            return Captured(text, seconds, True)
        while self._under_way and self._under_way[0][0].done:
            self._under_way.popleft()
        self._under_way.append((transfer, views))
        collective = KernelCollective(text, seconds, transfer, failed)
        if stream is None and wait:
            collective.wait()
        return collective

    def close(self, deadline: Deadline) -> None:
        """Waits for the calls that streams have still to carry out."""
        for transfer, _ in self._under_way:
            with suppress(Error, ValueError):
                transfer.wait(deadline.left)
        self._under_way.clear()
        if self._group is not None:
            self._group.end(f"the World {self._membership.name!r} is closed")
            self._group = None
            self._tell_others(Deadline(min(_TELL, deadline.left)))
        self._settled, self._arena = True, None
        self._far_arenas.clear()

    def _tell_others(self, deadline: Deadline) -> None:
        """Kernels of the others that wait for this rank end soon: no kernel of this rank stores anything any more."""
        begin = _core.GpuGroup.LEFT[self._membership.rank]
        left, posted = np.ones(1, np.uint32).view(np.uint8), []
        for peer, arena in self._far_arenas:
            with suppress(Error):  # it is lost, or has left and freed it
                posted.append(peer.write(left, arena[begin : begin + left.nbytes]))
        for transfer in posted:
            with suppress(Error):
                transfer.wait(deadline.left)


class Captured(Collective):
    """A call that has become part of a CUDA graph."""

    enqueued = True


class KernelCollective(Collective):
    """A call that a kernel carries out. Work enqueued later in its stream begins once it is done."""

    enqueued = True

    def __init__(
        self,
        text: str,
        timeout: float,
        transfer: _core.Transfer,
        failed: Callable[[str, BaseException], BaseException],
    ) -> None:
        super().__init__(text, timeout, True)
        self._transfer, self._failed = transfer, failed

    @property
    def done(self) -> bool:
        return self._transfer.done

    def wait(self, timeout: float | None = None) -> None:
        """As Collective.wait; the kernel's own bound begins when its stream reaches it."""
        seconds = self.timeout + _LATE if timeout is None else max(0.0, float(timeout))
        if not self.join(seconds):
            raise TransferTimeout(f"{self._text} is still running; it continues", effect="all")
        if self._error is None:
            try:
                self._transfer.wait(0.0)
            except (Error, ValueError) as error:
                self._error = self._failed(self._text, error)
        if self._error is not None:
            raise self._error

    def _await_end(self) -> Generator[Any, None, Any]:
        from zerohop import aio

        with suppress(Error, ValueError):  # wait() raises it
            yield from aio.await_transfer(self._transfer, self.timeout + _LATE)

    def join(self, seconds: float | None = None) -> bool:
        try:
            self._transfer.wait(self.timeout + _LATE if seconds is None else seconds)
        except TransferTimeout:
            return self._transfer.done
        except (Error, ValueError):
            return True
        return True


def _gpu_of(flats: Sequence[Flat]) -> str:
    return next((flat.device for flat in flats if flat.device != "cpu"), "")


def _pci_of(device: str) -> str:
    return str(_core.gpu_facts(int(device.partition(":")[2]))["pci"])


def _on_gpu(array: Any) -> bool:
    if isinstance(array, (list, tuple)):
        return bool(array) and _on_gpu(array[0])
    if array is None or isinstance(array, np.ndarray):
        return False
    if isinstance(array, _core.Memory):
        return array.device != "cpu"
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == _CUDA


_CUDA = 2  # DLPack's kDLCUDA

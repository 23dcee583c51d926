"""A GPU whose memory is the host's and whose kernels are threads, for the steps of `zerohop verify --adapter`."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import zerohop as zh
from zerohop.verify.adapter.gpu import NBYTES, GpuPair
from zerohop.verify.adapter.step import Impossible


class HostPeer:
    """A Peer for which memory of the host passes for a GPU's."""

    def __init__(self, peer: zh.Peer) -> None:
        self._peer = peer

    def write(self, *arrays: Any, require: str = "", **options: Any) -> zh.Transfer:
        assert require in ("", "gpudirect")
        return self._peer.write(*arrays, **options)

    def read(self, *arrays: Any, require: str = "") -> zh.Transfer:
        assert require in ("", "gpudirect")
        return self._peer.read(*arrays)

    def device_queue(
        self,
        local: zh.Memory,
        remote: zh.RemoteMemory,
        way: str,
        send_queue: str = "host",
        completion_queue: str = "host",
    ) -> Any:
        """send_queue and completion_queue: only the first can lie on the GPU."""
        assert way == "direct"
        if completion_queue == "gpu":
            raise zh.RouteUnavailable("completions do not reach it")
        value = SimpleNamespace(peer=self._peer, local=local, remote=remote)
        return nullcontext(SimpleNamespace(value=value, way=way, route="made up"))


class HostGpu(GpuPair):
    """A GPU whose memory is the host's and whose kernels are threads. spoil: called with memory that was written."""

    def __init__(
        self, device: str, lacks: tuple[str, ...] = (), spoil: Callable[[Any], None] | None = None
    ) -> None:
        super().__init__(device, lambda *_: HostKernels(self))
        self.peer: Any = HostPeer(self.peer)
        self._lacks, self._spoil = lacks, spoil

    @property
    def gpu(self) -> Any:
        raise AssertionError("the driver is not asked")

    def memory(self, way: str) -> zh.Memory:
        if way in self._lacks:
            raise Impossible(f"no {way} here")
        if way not in self._memories:
            self._memories[way] = self.far.empty(NBYTES)
        return self._memories[way]

    def new_source(self) -> zh.Memory:
        return self.near.empty(NBYTES)

    def board(self, slot: int) -> Any:
        return self._board()

    @contextmanager
    def _board(self) -> Iterator[Any]:
        yield SimpleNamespace(value=self.far)

    def content(self, memory: zh.Memory) -> Any:
        found = np.array(memory)
        if self._spoil is not None:
            self._spoil(found)
        return found

    def store(self, memory: zh.Memory, content: Any) -> None:
        np.asarray(memory)[: content.size] = content

    def pinned(self) -> Any:
        return np.zeros(1, np.uint32)

    def at(self, address: int, nbytes: int) -> Any:
        """The words there, of one of its memories."""
        for memory in self._memories.values():
            begin = address - memory.address
            if 0 <= begin < memory.nbytes:
                return np.asarray(memory)[begin : begin + nbytes].view(np.uint32)
        raise AssertionError("no memory of this GPU")


class HostKernels:
    """What the kernels of kernels.cu do, by a thread of the host."""

    def __init__(self, pair: HostGpu) -> None:
        self._pair = pair

    def run(self, name: str, shape: tuple[int, int], *arguments: Any) -> tuple[float, float, float]:
        assert shape == (1, 1)
        found = getattr(self, name)(*arguments)
        return 1e-3, 1e-3, found * 1e-9

    def spin(self, word: Any, data: Any, nbytes: Any, value: Any, started: Any) -> int:
        place = self._pair.at(int(word), 4)
        assert place[0] == 0  # nothing is written before it spins
        word_at(started)[0] = 1
        while place[0] != value:
            pass
        return int((self._pair.at(int(data), int(nbytes)) != value).sum())

    def hear(
        self, far: zh.Endpoint, slot: Any, data: Any, nbytes: Any, first: Any, last: Any, heard: Any
    ) -> int:
        words = self._pair.at(int(data), int(nbytes))
        told = word_at(heard)
        for number in range(int(first), int(last) + 1):
            value = far.wait_notify(int(slot), 5.0)
            if value != number or (words != number).any():
                return number
            told[0] = number
        return 0

    def drive(self, queue: Any, nbytes: Any, piece: Any, slot: Any, value: Any) -> int:
        for at in range(0, int(nbytes), int(piece)):
            end = min(int(nbytes), at + int(piece))
            queue.peer.write(queue.local[at:end], queue.remote[at:end]).wait()
        queue.peer.notify(int(slot), int(value))
        return 0


def word_at(address: Any) -> Any:
    """A word of pinned()."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * 1).from_address(int(address)))

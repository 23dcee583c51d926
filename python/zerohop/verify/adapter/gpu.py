"""A GPU beside the device: two Endpoints of this process, memory of the GPU, and kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from zerohop import _core
from zerohop._core import DeviceBoard, Memory, Peer
from zerohop.bench.gda.kernels import Kernels
from zerohop.bench.p2p.driver import Driver, Gpu
from zerohop.bench.plan import PeerFailed
from zerohop.errors import RegistrationError
from zerohop.verify.adapter.end import Bytes, compare, pattern
from zerohop.verify.adapter.engine_end import open_endpoint
from zerohop.verify.adapter.step import Failed, Impossible, NotRun

ORDINAL = 0
NAME = f"cuda:{ORDINAL}"
NBYTES = 4 << 20
SOURCE = Path(__file__).with_name("kernels.cu")
KERNELS = ("spin", "hear", "drive")
WAYS = ("dmabuf", "peermem")
KERNEL_S = 20.0  # after which a kernel counts as hung


def find_gpu() -> Gpu:
    """Raises NotRun."""
    if _core.gpu_count() == 0:
        remedy = "run it on a host with an NVIDIA GPU; zerohop doctor shows why there is none"
        raise NotRun("no GPU here", remedy)
    try:
        return Driver().gpu(ORDINAL)
    except PeerFailed as error:
        raise Failed(str(error), "see zerohop doctor") from None


class GpuPair:
    """`near` is connected with `far`; both are Endpoints of this process, on the device under test."""

    def __init__(self, device: str, make_kernels: Callable[..., Any] = Kernels) -> None:
        self._device = device
        self._make_kernels = make_kernels
        self.near, self.far = open_endpoint(device), open_endpoint(device)
        self.peer: Peer = self.near.connect(self.far.address)
        self.staging = self.near.empty(NBYTES)  # of the host, at the near end
        self.host = self.far.empty(NBYTES)  # of the host, at the far end
        self._memories: dict[str, Memory] = {}

    @cached_property
    def gpu(self) -> Gpu:
        return find_gpu()

    @cached_property
    def kernels(self) -> Any:
        """Raises NotRun where they cannot be compiled."""
        try:
            return self._make_kernels(ORDINAL, SOURCE, KERNELS)
        except PeerFailed as missing:
            cause, _, remedy = str(missing).rpartition(": ")
            raise NotRun(cause, remedy) from None

    def memory(self, way: str) -> Memory:
        """GPU memory of the far end, registered in that way. Raises Impossible."""
        if way not in self._memories:
            try:
                self._memories[way] = self.far.empty(NBYTES, device=NAME, registration=way)
            except RegistrationError as error:
                raise Impossible(str(error), "the message names what is missing") from None
        return self._memories[way]

    def new_source(self) -> Memory:
        """GPU memory of the near end, which kernels put from."""
        return self.near.empty(NBYTES, device=NAME)

    def board(self, slot: int) -> DeviceBoard:
        return self.far.device_board(slot, device=NAME)

    def any_memory(self) -> Memory:
        """Registered with the device in the first way that works, or as soft0 does. Raises Impossible."""
        reasons = []
        for way in (*WAYS, "auto") if self._device.startswith("soft") else WAYS:
            try:
                return self.memory(way)
            except Impossible as why:
                reasons.append(f"{way}: {why.cause}")
        raise Impossible("; ".join(reasons), "either way is enough: dma-buf, or nvidia-peermem")

    def content(self, memory: Memory) -> Bytes:
        """The bytes; of a GPU's memory copied by the driver, and not by the device."""
        if memory.device == "cpu":
            return np.asarray(memory)
        found = np.empty(memory.nbytes, np.uint8)
        self.gpu.use()
        address = ctypes.c_void_p(found.ctypes.data)
        source = ctypes.c_uint64(memory.address)
        self.gpu.driver.call("cuMemcpyDtoH_v2", address, source, ctypes.c_size_t(found.size))
        return found

    def store(self, memory: Memory, content: Bytes) -> None:
        self.gpu.use()
        target, address = ctypes.c_uint64(memory.address), ctypes.c_void_p(content.ctypes.data)
        self.gpu.driver.call("cuMemcpyHtoD_v2", target, address, ctypes.c_size_t(content.size))

    def check(self, memory: Memory, seed: int, nbytes: int, offset: int) -> None:
        """That the pattern is there, and zeros beside."""
        wanted = np.zeros(memory.nbytes, np.uint8)
        wanted[offset : offset + nbytes] = pattern(seed, nbytes)
        if said := compare(self.content(memory), wanted):
            raise Failed(said, "report this: bytes were lost or misplaced without an error")

    def run(
        self, name: str, *arguments: Any, meanwhile: Callable[[], None] | None = None
    ) -> tuple[float, int]:
        """One thread runs the kernel, and this one does something meanwhile: seconds it took, and what it found."""
        found: list[Any] = []

        def launch() -> None:
            try:
                found.append(self.kernels.run(name, (1, 1), *arguments))
            except PeerFailed as failed:
                found.append(failed)

        _ = self.kernels  # compiled here, so that what is missing is said
        thread = threading.Thread(target=launch, name=f"zerohop {name}")
        thread.start()
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            thread.join(2 * KERNEL_S)
        if not found:
            raise Failed(f"the kernel {name} did not end in {2 * KERNEL_S:g} s")
        if isinstance(found[0], PeerFailed):
            raise Failed(str(found[0]))
        _, took, third = found[0]
        return took, round(third * 1e9)  # Kernels counts the third word as nanoseconds, too

    def pinned(self) -> Any:
        """A word of the host's memory that kernels write: an array of one u32, and its address."""
        return import_module("cupyx").zeros_pinned(1, np.uint32)

    def close(self) -> None:
        self.near.close(0)
        self.far.close(0)

"""The CUDA driver calls that the benchmark makes itself, with ctypes: streams, events, bare copies.

ctypes needs no package and, with prepared arguments, costs less Python time (about 0.4 us a
call) than the array frameworks. Objects made here live until their process exits.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from zerohop.bench.plan import PeerFailed

LIBRARY = "libcuda.so.1"
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the default stream
NOT_READY = 600  # CUDA_ERROR_NOT_READY
PEER_ACCESS_ALREADY_ENABLED = 704
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
Event = ctypes.c_void_p
LOOKS = 64  # polls of a stream between two clock readings


class Driver:
    """The driver's functions by name; every code other than 0 raises PeerFailed. `library`: a stand-in in tests."""

    def __init__(self, library: Any = None) -> None:
        self.library = library or _load()
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        self.check(name, getattr(self.library, name)(*arguments))

    def check(self, name: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            said = (text.value or b"unknown").decode()
            raise PeerFailed(f"{name}: CUDA error {code} ({said})")

    def version(self) -> int:
        """The CUDA version, as 1000 * major + 10 * minor."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value

    def gpu(self, ordinal: int) -> Gpu:
        return Gpu(self, ordinal)


class Gpu:
    """The primary context of one GPU. It becomes current in the calling thread, until another one does."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self._device = ctypes.c_int()
        self.context = ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(self._device), ordinal)
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self._device)
        self.use()

    def use(self) -> None:
        self.driver.call("cuCtxSetCurrent", self.context)

    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.driver.call("cuDeviceGetName", text, 256, self._device)
        return text.value.decode()

    def architecture(self) -> str:
        """In nvcc's form, "sm_90"."""
        return f"sm_{self._attribute(CAPABILITY_MAJOR)}{self._attribute(CAPABILITY_MINOR)}"

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def free_nbytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.use()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def reach(self, other: Gpu) -> None:
        """Enables direct copies between the two. Raises PeerFailed if they cannot."""
        able = ctypes.c_int()
        self.driver.call("cuDeviceCanAccessPeer", ctypes.byref(able), self._device, other._device)
        if not able.value:
            raise PeerFailed(f"GPU {self.ordinal} cannot reach the memory of GPU {other.ordinal}")
        self.use()
        code = self.driver.library.cuCtxEnablePeerAccess(other.context, 0)
        if code != PEER_ACCESS_ALREADY_ENABLED:
            self.driver.check("cuCtxEnablePeerAccess", code)

    def allocate(self, nbytes: int) -> int:
        """The address of zeroed memory."""
        address = ctypes.c_uint64()
        self.use()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        self.driver.call("cuMemsetD8_v2", address, 0, ctypes.c_size_t(nbytes))
        return address.value

    def stream(self) -> Stream:
        return Stream(self)


class Stream:
    """A stream; `int(stream)` is its handle."""

    def __init__(self, gpu: Gpu) -> None:
        self._driver = gpu.driver
        self.handle = ctypes.c_void_p()
        gpu.use()
        self._driver.call("cuStreamCreate", ctypes.byref(self.handle), NON_BLOCKING)

    def __int__(self) -> int:
        return self.handle.value or 0

    def synchronize(self) -> None:
        self._driver.call("cuStreamSynchronize", self.handle)

    def wait(self, seconds: float) -> None:
        """Waits until it has done all its work; raises PeerFailed if that takes longer."""
        until = time.monotonic() + seconds
        while True:
            for _ in range(LOOKS):
                code = self._driver.library.cuStreamQuery(self.handle)
                if code != NOT_READY:
                    self._driver.check("cuStreamQuery", code)
                    return
            if time.monotonic() > until:
                raise PeerFailed(f"the stream was still busy after {seconds:g} s")

    def event(self) -> Event:
        """Records an event in the stream."""
        event = Event()
        self._driver.call("cuEventCreate", ctypes.byref(event), 0)
        self._driver.call("cuEventRecord", event, self.handle)
        return event

    def seconds_between(self, begin: Event, end: Event) -> float:
        """Time between two completed events, which are destroyed."""
        milliseconds = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
        for event in (begin, end):
            self._driver.call("cuEventDestroy_v2", event)
        return milliseconds.value * 1e-3

    def copier(
        self, target: tuple[Gpu, int], source: tuple[Gpu, int], nbytes: int
    ) -> Callable[[], None]:
        """One bare copy of `nbytes` between (GPU, address) and (GPU, address), enqueued by each call."""
        copy = self._driver.library.cuMemcpyPeerAsync
        arguments = (
            *(ctypes.c_uint64(target[1]), target[0].context),
            *(ctypes.c_uint64(source[1]), source[0].context),
            *(ctypes.c_size_t(nbytes), self.handle),
        )
        check = self._driver.check

        def enqueue() -> None:
            if code := copy(*arguments):
                check("cuMemcpyPeerAsync", code)

        return enqueue


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise PeerFailed(f"no NVIDIA driver: {error}") from None

"""Stand-ins for what `zerohop bench p2p` runs on GPUs: a CUDA driver on host memory, and contenders."""

import ctypes
import os
import re
import threading
from collections.abc import Callable
from io import StringIO
from typing import Any

import zerohop as zh
from rich.console import Console
from zerohop.bench.p2p.driver import NOT_READY
from zerohop.bench.p2p.ours import Ours
from zerohop.bench.p2p.peers import Raw
from zerohop.bench.pair import Pair
from zerohop.bench.plan import Options, PeerFailed
from zerohop.bench.runner import Suite, run_suite
from zerohop.bench.workers import Player, together


def sentences(text: str) -> str:
    """Without the lines that tables draw."""
    return " ".join(re.sub(r"[^\x00-\x7f]", " ", text).split())


def reported(make: Callable[[Options], Suite], options: Options) -> tuple[bool, str]:
    """Whether a run of a benchmark went well, and what it says."""
    console = Console(file=StringIO(), width=200)
    good = run_suite(make, options, console)
    return good, sentences(console.file.getvalue())


def at(reference: Any) -> Any:
    """What ctypes.byref() was made of."""
    return reference._obj


class HostCuda:
    """libcuda as far as the benchmark calls it, with host memory for a GPU's. `codes`: errors by function."""

    def __init__(self, reachable: bool = True, busy: bool = False, **codes: int) -> None:
        self.reachable = reachable
        self.busy = busy
        self.codes = codes
        self.calls: list[str] = []
        self.kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if code := self.codes.get(name, 0):
                return code
            act = _ACTS.get(name)
            return (act(self, *arguments) if act else None) or 0

        return call


def _error_text(cuda: HostCuda, code: int, text: Any) -> None:
    at(text).value = b"made up"


def _device(cuda: HostCuda, device: Any, ordinal: int) -> None:
    at(device).value = ordinal


def _name(cuda: HostCuda, text: Any, size: int, device: Any) -> None:
    text.value = b"Host"


def _free(cuda: HostCuda, free: Any, total: Any) -> None:
    at(free).value, at(total).value = 1 << 30, 2 << 30


def _can_access(cuda: HostCuda, able: Any, device: Any, other: Any) -> None:
    at(able).value = int(cuda.reachable)


def _allocate(cuda: HostCuda, address: Any, nbytes: Any) -> None:
    cuda.kept.append(ctypes.create_string_buffer(nbytes.value))
    at(address).value = ctypes.addressof(cuda.kept[-1])


def _handle(cuda: HostCuda, handle: Any, *rest: Any) -> None:
    at(handle).value = 77


def _query(cuda: HostCuda, stream: Any) -> int:
    return NOT_READY if cuda.busy else 0


def _elapsed(cuda: HostCuda, milliseconds: Any, begin: Any, end: Any) -> None:
    at(milliseconds).value = 1.5


def _copy(cuda: HostCuda, to: Any, there: Any, source: Any, here: Any, n: Any, s: Any) -> None:
    ctypes.memmove(to.value, source.value, n.value)


def _version(cuda: HostCuda, number: Any) -> None:
    at(number).value = 13000


_ACTS = {
    "cuGetErrorString": _error_text,
    "cuDriverGetVersion": _version,
    "cuDeviceGet": _device,
    "cuDeviceGetName": _name,
    "cuMemGetInfo_v2": _free,
    "cuDeviceCanAccessPeer": _can_access,
    "cuMemAlloc_v2": _allocate,
    "cuStreamCreate": _handle,
    "cuStreamQuery": _query,
    "cuEventCreate": _handle,
    "cuEventElapsedTime": _elapsed,
    "cuMemcpyPeerAsync": _copy,
}


class NoStreams:
    """A ping-pong of streams on a host that has none, as rank 0 says."""

    def __init__(self, link: Any) -> None:
        self._link = link

    def measure(self, nbytes: int) -> dict[str, float]:
        return together(self._link, self._play)

    def _play(self) -> dict[str, float]:
        if self._link.rank == 0:
            raise zh.RouteUnavailable("no streams on this host")
        return {}


class HostOurs(Ours):
    """Ours between host arrays, which are p2p as well; without streams."""

    def __init__(self, link: Any, *arguments: Any) -> None:
        super().__init__(link, *arguments, HostCuda())
        self._ping_pong: Any = NoStreams(link)

    def _empty(self, nbytes: int) -> zh.Memory:
        return self._endpoint.empty(nbytes)


class HostRaw(Raw):
    """Bare copies, by a process that fails when all is done."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, HostCuda())

    def close(self) -> None:
        raise RuntimeError("did not let go")


class Unfit(Player):
    """A peer that cannot run here."""

    def __init__(self, *arguments: Any) -> None:
        raise PeerFailed("PyTorch is made up")


class Dies(Player):
    """A peer that ends without a word in the middle of a figure."""

    def __init__(self, link: Any, *arguments: Any) -> None:
        self.rank = link.rank

    def facts(self) -> dict[str, str]:
        return {"dies": "1.0"}

    def write(self, nbytes: int, times: int) -> float:
        if self.rank == 1:
            os._exit(3)
        return 1.0


class Hangs(Dies):
    def write(self, nbytes: int, times: int) -> float:
        threading.Event().wait()
        return 1.0


def host_look(link: Any, gpus: tuple[int, int]) -> tuple[int, dict[str, Any]]:
    return 8 << 30, {"gpus": ["Host"] * len(gpus), "cuda_driver": 13000}


class FarPair(Pair):
    """An end whose memory the other process cannot reach by p2p."""

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "route": "host", "reason": "forbidden here"}

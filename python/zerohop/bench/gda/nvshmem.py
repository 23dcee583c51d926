"""The peer "nvshmem": kernels of two processes that communicate by NVSHMEM, one GPU each."""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path
from typing import Any

from zerohop.bench.gda.nvshmem_build import Toolchain, build, find_toolchain
from zerohop.bench.gda.ours import Found, rate_of
from zerohop.bench.gda.plan import (
    PIECE_NBYTES,
    WIDE_NBYTES,
    WIDE_SHAPE,
    threads_of,
    warm_rounds,
)
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.peer import PeerFailed
from zerohop.bench.turns import together
from zerohop.local import Link

SAFE = {
    "NVSHMEM_DISABLE_NVLS": "1"
}  # NVLink multicast can put the GPUs of a shared host out of service
LOCAL = {  # both ranks are on this machine
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_REMOTE_TRANSPORT": "none",
}
SETTINGS = " ".join(f"{name}={value}" for name, value in {**SAFE, **LOCAL}.items())
BOOTSTRAP = "nvshmem_bootstrap_uid.so.3"  # which NVSHMEM opens by its name
u32, u64 = ctypes.c_uint32, ctypes.c_uint64


class Nvshmem:
    puts_1x1 = rate_of("peer_put_many", "1x1")
    puts_1x512 = rate_of("peer_put_many", "1x512")
    puts_132x512 = rate_of("peer_put_many", "132x512")
    values_1x1 = rate_of("peer_put_values", "1x1")
    values_1x512 = rate_of("peer_put_values", "1x512")
    values_132x512 = rate_of("peer_put_values", "132x512")

    def __init__(self, link: Link, gpus: tuple[int, int]) -> None:
        os.environ.update(SAFE)
        for name, value in LOCAL.items():
            os.environ.setdefault(name, value)
        self._link = link
        self._first = link.rank == 0
        gpu = gpus[link.rank]
        tools = find_toolchain()
        self._library = load(link, tools, self._architecture(gpu))
        made = together(link, lambda: self._make_id() if self._first else b"")
        identity = link.exchange(made)[0]
        together(link, lambda: self._call("peer_begin", gpu, link.rank, identity, u64(WIDE_NBYTES)))

    @staticmethod
    def _architecture(gpu: int) -> str:
        return Driver().gpu(gpu).architecture()

    def facts(self) -> dict[str, str]:
        numbers = [ctypes.c_int() for _ in range(3)]
        self._call("peer_version", *map(ctypes.byref, numbers))
        mapped = "mapped" if self._library.peer_is_mapped() else "not mapped"
        version = ".".join(str(number.value) for number in numbers)
        return {"nvshmem": version, "nvshmem_memory": mapped}

    def close(self) -> None:
        self._library.peer_end()

    def _make_id(self) -> bytes:
        text = ctypes.create_string_buffer(self._library.peer_id_nbytes())
        self._call("peer_make_id", text)
        return text.raw

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise PeerFailed(f"NVSHMEM: {name}: error {code}")

    def _seconds(self, name: str, *arguments: Any) -> float:
        seconds = ctypes.c_double()
        self._call(name, *arguments, ctypes.byref(seconds))
        return seconds.value

    def _both(self, times: int, name: str, *arguments: Any) -> Found:
        """One way of a ping-pong, which both ranks launch at once."""
        rounds = u32(times), u32(warm_rounds(times)), int(self._first)
        self._link.exchange(None)
        seconds = together(self._link, lambda: self._seconds(name, *arguments, *rounds))
        return {"one_way": seconds}

    def _active(self, name: str, *arguments: Any) -> float | None:
        return together(
            self._link, lambda: self._seconds(name, *arguments) if self._first else None
        )

    def put_notify(self, nbytes: int, times: int) -> Found:
        return self._both(times, "peer_ping_pong", u32(threads_of(nbytes)), u64(nbytes))

    def word(self, nbytes: int, times: int) -> Found:
        return self._both(times, "peer_word_ping_pong")

    def put_wide(self, nbytes: int, times: int) -> Found:
        shape = map(u32, WIDE_SHAPE)
        took = self._active("peer_put_wide", *shape, u64(nbytes), u64(PIECE_NBYTES))
        return {"bandwidth": nbytes / took} if took else {}

    def rate(self, name: str, shape: tuple[int, int], times: int) -> Found:
        took = self._active(name, *map(u32, shape), u32(times))
        return {"rate": shape[0] * shape[1] * times / took} if took else {}


def load(link: Link, tools: Toolchain, architecture: str) -> ctypes.CDLL:
    """Compiled by rank 0, for both: their GPUs are of one generation, or it is an error of the first launch."""
    with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as folder:
        first = link.rank == 0
        made = together(link, lambda: build(tools, architecture, Path(folder)) if first else None)
        path = link.exchange(made)[0]

        def opened() -> ctypes.CDLL:
            try:
                ctypes.CDLL(str(tools.home / "lib" / BOOTSTRAP))  # found by that name from then on
                return ctypes.CDLL(str(path))
            except OSError as error:
                raise PeerFailed(f"NVSHMEM cannot be loaded: {error}") from None

        return together(link, opened)  # both have: the folder goes

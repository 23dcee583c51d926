"""The peer "nvshmem": kernels of two processes that communicate by NVSHMEM, one GPU each, compiled at run time."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from zerohop.bench.gda.plan import (
    PIECE_NBYTES,
    SHAPES,
    WIDE_NBYTES,
    WIDE_SHAPE,
    threads_of,
    warm_rounds,
)
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.plan import Found, Order, PeerFailed
from zerohop.bench.workers import Player, together
from zerohop.local import Link

SOURCE = Path(__file__).with_name("nvshmem.cu")
PACKAGE = "nvidia-nvshmem-cu13"
HOST_LIBRARY = "libnvshmem_host.so.3"
NEEDED = ("include/nvshmem.h", "lib/libnvshmem_device.a", f"lib/{HOST_LIBRARY}")
BOOTSTRAP = "nvshmem_bootstrap_uid.so.3"  # NVSHMEM opens it by name
NVCC_PACKAGES = "nvidia-cuda-nvcc nvidia-cuda-cccl"
CCCL = "nv/target"  # one of its headers
TOOLKIT = "/usr/local/cuda"
BUILD_S = 60.0
# NVLink multicast can put the GPUs of a shared host out of service.
SAFE = {"NVSHMEM_DISABLE_NVLS": "1"}
LOCAL = {  # both ranks are on this machine
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_REMOTE_TRANSPORT": "none",
}
SETTINGS = " ".join(f"{name}={value}" for name, value in {**SAFE, **LOCAL}.items())
RATES = {"puts": "peer_put_many", "values": "peer_put_values"}  # for every shape
u32, u64 = ctypes.c_uint32, ctypes.c_uint64


class Nvshmem(Player):
    def __init__(self, link: Link, gpus: tuple[int, int]) -> None:
        os.environ.update(SAFE)
        for name, value in LOCAL.items():
            os.environ.setdefault(name, value)
        self._link = link
        self._first = link.rank == 0
        gpu = gpus[link.rank]
        self._library = load(link, find_nvcc(), find_home(), self._architecture(gpu))
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

    def perform(self, order: Order) -> Any:
        kind, _, shape = order.test.partition("_")
        if kind not in RATES:
            return super().perform(order)
        blocks, threads = SHAPES[shape]
        took = self._active(RATES[kind], u32(blocks), u32(threads), u32(order.times))
        return {"rate": blocks * threads * order.times / took} if took else {}

    def put_notify(self, nbytes: int, times: int) -> Found:
        return self._both(times, "peer_ping_pong", u32(threads_of(nbytes)), u64(nbytes))

    def put_wide(self, nbytes: int, times: int) -> Found:
        shape = map(u32, WIDE_SHAPE)
        took = self._active("peer_put_wide", *shape, u64(nbytes), u64(PIECE_NBYTES))
        return {"bandwidth": nbytes / took} if took else {}

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
        """Seconds one way of a ping-pong, which both ranks launch at once."""
        rounds = u32(times), u32(warm_rounds(times)), int(self._first)
        self._link.exchange(None)
        seconds = together(self._link, lambda: self._seconds(name, *arguments, *rounds))
        return {"one_way": seconds}

    def _active(self, name: str, *arguments: Any) -> float | None:
        return together(
            self._link, lambda: self._seconds(name, *arguments) if self._first else None
        )


def load(link: Link, nvcc: str, home: Path, architecture: str) -> ctypes.CDLL:
    """Compiled by rank 0 for both; GPUs of two generations fail at the first launch."""
    with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as folder:
        library = Path(link.exchange(folder)[0]) / "nvshmem_peer.so"
        if link.rank == 0:
            together(link, lambda: build(nvcc, home, architecture, library))
        else:
            together(link, lambda: None)

        def opened() -> ctypes.CDLL:
            try:
                ctypes.CDLL(str(home / "lib" / BOOTSTRAP))  # found by name from then on
                return ctypes.CDLL(str(library))
            except OSError as error:
                raise PeerFailed(f"NVSHMEM cannot be loaded: {error}") from None

        return together(link, opened)  # both have loaded it: the folder can be removed


def build(nvcc: str, home: Path, architecture: str, library: Path) -> None:
    """Compiles for a GPU of `architecture` ("sm_90"). Raises PeerFailed."""
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-std=c++17", "-O3", "-rdc=true"]
    command += [f"-arch={architecture}", "-isystem", str(home / "include")]
    command += ["-o", str(library), str(SOURCE), f"-L{home}/lib", "-lnvshmem_device"]
    command += [f"-l:{HOST_LIBRARY}", "-Xlinker", f"-rpath={home}/lib"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{nvcc}: still running after {BUILD_S:.0f} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        remedy = "pip install nvidia-cuda-cccl, because of: " if CCCL in said else ""
        raise PeerFailed(f"{nvcc}: exit status {done.returncode}: {remedy}{said[-300:]}")


def find_home() -> Path:
    """The folder of NVSHMEM: $NVSHMEM_HOME, or pip's package."""
    named = os.environ.get("NVSHMEM_HOME")
    for place in [Path(named)] if named else _pip_folders("nvidia.nvshmem"):
        if all((place / name).exists() for name in NEEDED):
            return place
    where = f" in $NVSHMEM_HOME ({named})" if named else ""
    raise PeerFailed(f"NVSHMEM is not found{where}: pip install {PACKAGE}")


def find_nvcc() -> str:
    """The nvcc of $CUDA_HOME, the PATH, the toolkit's usual place, or pip's package; preferably one with CCCL, whose
    headers NVSHMEM includes."""
    home = os.environ.get("CUDA_HOME", TOOLKIT)
    pips = [str(folder / "bin") for folder in _pip_folders("nvidia.cu13")]
    path = os.environ.get("PATH", "").split(os.pathsep)
    places = [f"{home}/bin", *path, f"{TOOLKIT}/bin", *pips]
    found = [nvcc for place in places if (nvcc := shutil.which("nvcc", path=place))]
    if not found:
        raise PeerFailed(
            "nvcc, which compiles the kernels of NVSHMEM, is not found: "
            f"pip install {NVCC_PACKAGES}, or set CUDA_HOME to a CUDA toolkit"
        )
    return min(found, key=lambda nvcc: not _has_cccl(Path(nvcc)))


def _has_cccl(nvcc: Path) -> bool:
    headers = (nvcc.resolve().parents[1] / "include", nvcc.parents[1] / "include")
    return any((place / inner / CCCL).exists() for place in headers for inner in ("", "cccl"))


def _pip_folders(package: str) -> list[Path]:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # the vendor's namespace package is missing, too
        return []
    return [Path(place) for place in (found and found.submodule_search_locations) or ()]

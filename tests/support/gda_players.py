"""Stand-ins for what `zerohop bench gda` runs on GPUs: kernels that take made-up times, and their queues."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import zerohop as zh
from zerohop.bench.gda.nvshmem import Nvshmem
from zerohop.bench.gda.ours import Ours
from zerohop.bench.gda.plan import ARENA_NBYTES

STUB = Path(__file__).with_name("nvshmem_peer.c")
EVENTS_S, TOOK_S, DONE_S = 1e-3, 2e-3, 3e-3
ARGUMENTS = {  # how many each kernel of kernels.cu has, ahead of the outcome
    "ping_pong_thread": 5,
    "ping_pong_block": 5,
    "put_many": 2,
    "put_values": 2,
    "post_values": 2,
    "put_wide": 3,
    "copy_wide": 3,
    "bare_ping_pong": 4,
}


class HostKernels:
    """Launches nothing."""

    def __init__(self, ordinal: int) -> None:
        pass

    def run(self, name: str, shape: tuple[int, int], *arguments: Any) -> tuple[float, float, float]:
        assert len(arguments) == ARGUMENTS[name]
        assert all(isinstance(argument, (np.generic, bytes)) for argument in arguments)
        return EVENTS_S, TOOK_S, DONE_S


@contextmanager
def host_way(reason: str = "") -> Iterator[Any]:
    """A queue, or a board."""
    yield SimpleNamespace(value=np.void(b"value"), route=SimpleNamespace(reason=reason))


class HostOurs(Ours):
    """Ours with an arena of the host, where one way of two is not to be had."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, HostKernels)

    def _new_arena(self, gpu: str) -> zh.Memory:
        return self._endpoint.empty(ARENA_NBYTES)

    def _new_board(self, gpu: str) -> Any:
        return host_way()

    def _new_queue(self, way: str, hears: str, *places: str) -> Any:
        if places == ("gpu", "host"):
            raise zh.RouteUnavailable("no dma-bufs on this host")
        if way == "proxy":
            raise zh.RouteUnavailable("no proxies on this host")
        return host_way("kernels that are made up")


class HostNvshmem(Nvshmem):
    """On the library that a stand-in for nvcc makes."""

    @staticmethod
    def _architecture(gpu: int) -> str:
        return "sm_90"


def stand_in_home(folder: Path) -> Path:
    """As pip's package of NVSHMEM has it, with libraries that move nothing."""
    home = folder / "nvshmem"
    for name in ("include/nvshmem.h", "lib/libnvshmem_device.a"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    library = home / "lib/libnvshmem_host.so.3"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, STUB], check=True)
    shutil.copy(library, home / "lib/nvshmem_bootstrap_uid.so.3")
    return home


def stand_in_nvcc(folder: Path, home: Path, *, works: bool = True, cccl: bool = True) -> Path:
    """The folder that is CUDA_HOME, whose nvcc copies the stand-in to where its -o says, or complains."""
    compiler = folder / "cuda/bin/nvcc"
    compiler.parent.mkdir(parents=True)
    copy = f'while [ "$1" != -o ]; do shift; done; cp {home}/lib/libnvshmem_host.so.3 "$2"'
    complaint = "echo 'nvshmem.cu: no such architecture' >&2; exit 2"
    compiler.write_text(f"#!/bin/sh\n{copy if works else complaint}\n")
    compiler.chmod(0o755)
    if cccl:
        header = folder / "cuda/include/cccl/nv/target"
        header.parent.mkdir(parents=True)
        header.touch()
    return folder / "cuda"

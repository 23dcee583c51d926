"""NVSHMEM's package and nvcc, if they are there, and the peer's kernels compiled against the two."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from zerohop.bench.peer import PeerFailed

SOURCE = Path(__file__).with_name("nvshmem.cu")
PACKAGE = "nvidia-nvshmem-cu13"
HOST_LIBRARY = "libnvshmem_host.so.3"
NEEDED = ("include/nvshmem.h", "lib/libnvshmem_device.a", f"lib/{HOST_LIBRARY}")
NVCC_PACKAGES = "nvidia-cuda-nvcc nvidia-cuda-cccl"
CCCL = "nv/target"  # one of its headers
TOOLKIT = "/usr/local/cuda"
BUILD_S = 60.0


@dataclass(frozen=True)
class Toolchain:
    nvcc: str
    home: Path  # of NVSHMEM: include, lib


def find_toolchain() -> Toolchain:
    """Raises PeerFailed with what is to be installed."""
    return Toolchain(_find_nvcc(), _find_home())


def _find_home() -> Path:
    """$NVSHMEM_HOME, or pip's package."""
    named = os.environ.get("NVSHMEM_HOME")
    places = [Path(named)] if named else _pip_folders("nvidia.nvshmem")
    for place in places:
        if all((place / name).exists() for name in NEEDED):
            return place
    where = f" in $NVSHMEM_HOME ({named})" if named else ""
    raise PeerFailed(f"NVSHMEM is not found{where}: pip install {PACKAGE}")


def _find_nvcc() -> str:
    """Of $CUDA_HOME, the PATH, the toolkit's usual place, or pip's package; rather one that has CCCL, whose
    headers NVSHMEM's include."""
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
    except ModuleNotFoundError:  # nor is there any other of that vendor
        return []
    return [Path(place) for place in (found and found.submodule_search_locations) or ()]


def build(tools: Toolchain, architecture: str, folder: Path) -> Path:
    """The shared library, made in `folder` for a GPU of `architecture` ("sm_90"). Raises PeerFailed."""
    library = folder / "nvshmem_peer.so"
    libraries = tools.home / "lib"
    command = [tools.nvcc, "-shared", "-Xcompiler", "-fPIC", "-std=c++17", "-O3", "-rdc=true"]
    command += [f"-arch={architecture}", "-isystem", str(tools.home / "include")]
    command += ["-o", str(library), str(SOURCE), f"-L{libraries}", "-lnvshmem_device"]
    command += [f"-l:{HOST_LIBRARY}", "-Xlinker", f"-rpath={libraries}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{tools.nvcc}: no end after {BUILD_S:.0f} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        remedy = "pip install nvidia-cuda-cccl, for: " if CCCL in said else ""
        raise PeerFailed(f"{tools.nvcc}: exit status {done.returncode}: {remedy}{said[-300:]}")
    return library

"""The headers for kernels: their folder, and compiler options."""

from __future__ import annotations

import hashlib
from pathlib import Path

_HEADERS = {".cuh", ".h", ".hpp"}


def include_dir() -> str:
    """The folder with ``zerohop/device.cuh``, for ``nvcc -I`` and NVRTC. ``compile_options()`` includes it."""
    return str(Path(__file__).parents[1] / "include")


def compile_options(*folders: str | Path) -> tuple[str, ...]:
    """Compiler options for a kernel that includes ``zerohop/device.cuh``, for nvcc and NVRTC, and so for
    ``cupy.RawModule(code=..., options=zerohop.compile_options())``.

    The last one defines a digest of all headers. CuPy and others cache compiled kernels by source and options,
    without the included files: the digest makes them compile again for another version of zerohop, whose queues may have
    another layout. folders: your own header folders (.cuh, .h, .hpp), which are included and digested likewise.
    """
    every = [Path(include_dir()), *map(Path, folders)]
    digest = hashlib.sha256()
    for folder in every:
        for header in sorted(path for path in folder.rglob("*") if path.suffix in _HEADERS):
            digest.update(header.read_bytes())
    found = digest.hexdigest()[:16]
    return "-std=c++17", *(f"-I{folder}" for folder in every), f"-DZEROHOP_HEADERS=0x{found}"

"""What kernels need of this package: where their headers are, and how to compile with them."""

from __future__ import annotations

import hashlib
from pathlib import Path

_HEADERS = {".cuh", ".h", ".hpp"}


def include_dir() -> str:
    """The folder that has ``zerohop/device.cuh``: for ``nvcc -I`` and for NVRTC. ``compile_options()`` has it, too."""
    return str(Path(__file__).parents[1] / "include")


def compile_options(*folders: str | Path) -> tuple[str, ...]:
    """What to compile a kernel with that includes ``zerohop/device.cuh``, for nvcc, NVRTC and so for
    ``cupy.RawModule(code=..., options=zerohop.compile_options())``.

    The last one defines a digest of all headers. CuPy and others keep what they have compiled by source and options,
    whatever those include: by it they compile anew for another version of zerohop, whose queues may have another
    layout. folders: of your own headers (.cuh, .h, .hpp), found and digested likewise.
    """
    every = [Path(include_dir()), *map(Path, folders)]
    digest = hashlib.sha256()
    for folder in every:
        for header in sorted(path for path in folder.rglob("*") if path.suffix in _HEADERS):
            digest.update(header.read_bytes())
    found = digest.hexdigest()[:16]
    return "-std=c++17", *(f"-I{folder}" for folder in every), f"-DZEROHOP_HEADERS=0x{found}"

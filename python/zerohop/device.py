"""What kernels need of this package: where their header is."""

from __future__ import annotations

from pathlib import Path

__all__ = ["include_dir"]


def include_dir() -> str:
    """The folder that has ``zerohop/device.cuh``: for ``nvcc -I`` and for NVRTC, so for
    ``cupy.RawModule(code=..., options=("-std=c++17", f"-I{zerohop.include_dir()}"))``.
    """
    return str(Path(__file__).parent / "include")

"""The compiler of kernels: where it is, and that it has nothing to say about a file."""

import os
import shutil
from pathlib import Path

import pytest
import zerohop as zh

from support.program import run


def nvcc() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which(f"{home}/bin/nvcc") or shutil.which("nvcc")
    if found is None:
        pytest.fail("no nvcc: pip install nvidia-cuda-nvcc, and set CUDA_HOME to its nvidia/cu13")
    return found


def compiles(file: Path, architecture: str, out: Path, *options: str) -> None:
    """Without a warning; the result goes to the folder `out`."""
    command = [nvcc(), *zh.compile_options(), "-cubin", f"-arch={architecture}", *options]
    done = run(*command, "-Werror", "all-warnings", "-o", out / "kernels.cubin", file)
    assert done.returncode == 0, done.stderr

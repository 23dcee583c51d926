"""Kernels of Numba, compiled and linked without a GPU."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from cuda.core import Linker, LinkerOptions, ObjectCode
from numba import cuda


def linked(kernel: Callable[..., Any], signature: str, ptx: bool = False) -> bytes:
    """The cubin for sm_90, or its PTX."""
    gpu = SimpleNamespace(compute_capability=(9, 0))
    # Numba asks the GPU for what it compiles the functions that a kernel calls; the kernel's own is given.
    with patch("numba.cuda.dispatcher.get_current_device", lambda: gpu):
        codes, _ = cuda.compile_all(
            kernel, signature, device=False, abi="numba", cc=(9, 0), output="ltoir"
        )
    parts = [ObjectCode.from_ltoir(code) if isinstance(code, bytes) else code for code in codes]
    options = LinkerOptions(arch="sm_90", link_time_optimization=True, ptx=ptx)
    code: bytes = Linker(*parts, options=options).link("ptx" if ptx else "cubin").code
    return code

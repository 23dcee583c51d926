"""``numpy.asarray(memory)`` where the buffer protocol does not do: types that NumPy itself lacks."""

from __future__ import annotations

import importlib
from typing import Any

from zerohop import _core

__all__ = ["to_numpy"]


def _extension_type(name: str) -> Any:
    try:
        found = getattr(importlib.import_module("ml_dtypes"), name, None)
    except ImportError:
        found = None
    if found is None:
        raise TypeError(
            f"NumPy has no {name}: install ml_dtypes, or use torch.from_dlpack(memory), whose "
            ".view(torch.uint8) shows the bits"
        )
    return found


def to_numpy(view: _core.ArrayView, name: str, dtype: Any, copy: bool | None) -> Any:
    """What ``Memory.__array__`` returns; `view` shows a type that NumPy lacks as unsigned integers."""
    import numpy as np

    array = np.asarray(memoryview(view))  # type: ignore[arg-type]
    if array.dtype != name:
        array = array.view(_extension_type(name))
    wanted = array.dtype if dtype is None else np.dtype(dtype)
    if wanted == array.dtype and not copy:
        return array
    if copy is False:
        raise ValueError(f"{name} does not become {wanted} without a copy")
    return array.astype(wanted)

"""NumPy's part: names of element types, and arrays of types that NumPy lacks."""

from __future__ import annotations

import importlib
from typing import Any

from zerohop import _core

__all__ = ["dtype_name", "to_numpy"]


def dtype_name(dtype: Any) -> str:
    """The name of an element type in any form that NumPy or PyTorch accept: "f4", int, torch.half.

    Raises TypeError (not a dtype), ValueError (not in this machine's byte order).
    """
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    import numpy as np

    try:
        known = None if dtype is None else np.dtype(dtype)  # np.dtype(None) is float64
    except (TypeError, ValueError, SyntaxError):
        known = None
    if known is None and isinstance(dtype, str):
        return dtype  # "bfloat16": NumPy knows it only with ml_dtypes
    if known is None:
        raise TypeError(
            f'a dtype is a name such as "float32", or a dtype of NumPy or PyTorch, not {text}'
        )
    if not known.isnative:
        raise ValueError(
            f"dtype {text} has another byte order than this machine: use {known.newbyteorder()}"
        )
    return str(known.name)


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
    """Implements ``Memory.__array__``; in `view` a type that NumPy lacks appears as unsigned integers."""
    import numpy as np

    array = np.asarray(memoryview(view))  # type: ignore[arg-type]
    if array.dtype != name:
        array = array.view(_extension_type(name))
    wanted = array.dtype if dtype is None else np.dtype(dtype)
    if wanted == array.dtype and not copy:
        return array
    if copy is False:
        raise ValueError(f"{name} cannot become {wanted} without a copy")
    return array.astype(wanted)

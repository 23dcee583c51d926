"""Arrays of examples that launch no kernels: NumPy's in the host's memory, PyTorch's on a GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "HostArrays", "TorchArrays", "arrays_of"]


class HostArrays:
    def view(self, memory: Any) -> Any:
        """The array in memory of an Endpoint or a Segment."""
        return np.asarray(memory)

    def fill(self, array: Any, values: npt.ArrayLike) -> None:
        """They are there when it returns."""
        array[...] = values

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        """The array itself, or a copy."""
        return np.asarray(array)


class TorchArrays:
    def __init__(self, device: str) -> None:
        self._torch: Any = import_module("torch")
        self._torch.cuda.set_device(device)

    def view(self, memory: Any) -> Any:
        return self._torch.from_dlpack(memory)

    def fill(self, array: Any, values: npt.ArrayLike) -> None:
        array.copy_(self._torch.from_numpy(np.array(values)))
        self._torch.cuda.synchronize()  # transfers begin outside of PyTorch's streams

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        host: npt.NDArray[Any] = array.cpu().numpy()
        return host


Arrays = HostArrays | TorchArrays


def arrays_of(device: str) -> Arrays:
    return HostArrays() if device == "cpu" else TorchArrays(device)

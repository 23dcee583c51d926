"""Arrays of examples without kernels of their own: NumPy's in the host's memory, PyTorch's or CuPy's on a GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Arrays",
    "CupyArrays",
    "HostArrays",
    "TorchArrays",
    "XpArrays",
    "arrays_of",
    "xp_arrays_of",
]


class HostArrays:
    name = "NumPy"
    xp: Any = np
    stream: Any = None

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


class CupyArrays:
    """All that is computed with them is in `stream`."""

    name = "CuPy"

    def __init__(self, device: str) -> None:
        self.xp: Any = import_module("cupy")
        self.xp.cuda.Device(int(device.partition(":")[2])).use()
        self.stream: Any = self.xp.cuda.Stream(non_blocking=True)
        self.stream.use()

    def view(self, memory: Any) -> Any:
        return self.xp.from_dlpack(memory)

    def fill(self, array: Any, values: npt.ArrayLike) -> None:
        array[...] = self.xp.asarray(values, dtype=array.dtype)
        self.stream.synchronize()

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        host: npt.NDArray[Any] = self.xp.asnumpy(array)
        return host


Arrays = HostArrays | TorchArrays
XpArrays = HostArrays | CupyArrays


def arrays_of(device: str) -> Arrays:
    """PyTorch's on GPUs."""
    return HostArrays() if device == "cpu" else TorchArrays(device)


def xp_arrays_of(device: str) -> XpArrays:
    """CuPy's on GPUs: of one interface with NumPy's, `xp`."""
    return HostArrays() if device == "cpu" else CupyArrays(device)

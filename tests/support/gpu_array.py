"""A GPU's array, looked at and filled by the cases as if it were NumPy's."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

# What the cases ask an array for; of the copy that is made for it.
ATTRIBUTES = {
    "all", "any", "copy", "dtype", "nbytes", "ndim", "ravel", "reshape", "shape", "size", "strides",
    "sum", "tobytes", "tolist",
}  # fmt: skip


class GpuArray(NDArrayOperatorsMixin):
    """What is read is a read-only copy in host memory, made now; what is assigned goes to the GPU.

    `tensor`: of PyTorch, contiguous, on any device; it stays alive. `dtype` is NumPy's name for its own.
    A slice of bytes in a row is a GpuArray again; only the whole of one can be assigned to.
    """

    def __init__(self, tensor: Any, shape: tuple[int, ...], dtype: Any) -> None:
        import torch

        assert tensor.is_contiguous()
        flat = tensor.reshape(-1) if tensor.numel() else torch.empty(1, device=tensor.device)[:0]
        self._bytes = flat.view(torch.uint8)
        self._shape, self._dtype = shape, np.dtype(dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # it always is one
        now = self._bytes.to("cpu", copy=True).numpy().view(self._dtype).reshape(self._shape)
        now.flags.writeable = False
        return now if dtype is None else now.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and self._dtype.itemsize == len(self._shape) == 1:
            begin, end, step = index.indices(self._shape[0])
            if step == 1:
                part = self._bytes[begin : max(begin, end)]
                return GpuArray(part, tuple(part.shape), self._dtype)
        return np.asarray(self)[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        import torch

        assert index is Ellipsis or index == slice(None), "only the whole of it can be assigned to"
        filled = np.empty(self._shape, self._dtype)
        filled[...] = value
        self._bytes.copy_(torch.from_numpy(filled.reshape(-1).view(np.uint8)))

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        """Operators: the answer is in host memory; that of `view += 1` is assigned."""
        hosts = [np.asarray(one) if isinstance(one, GpuArray) else one for one in inputs]
        call: Callable[..., Any] = getattr(ufunc, method)
        answer = call(*hosts, **options)
        if not out:
            return answer
        out[0][...] = answer
        return out[0]

    def __getattr__(self, name: str) -> Any:
        if name not in ATTRIBUTES:
            raise AttributeError(f"the cases ask no array of a GPU for {name!r} yet")
        return getattr(np.asarray(self), name)

    def __len__(self) -> int:
        return self._shape[0]

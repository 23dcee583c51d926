"""Storages of PyTorch's tensors, which can be given other bytes while they are registered."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["hold"]


def hold(tensor: torch.Tensor) -> None:
    """Have PyTorch refuse from now on to resize the storage of a tensor of the CPU: resize_(), untyped_storage().resize_().

    Without that its bytes would go back to the allocator while devices and peers still write there. PyTorch does so with
    what it shares with NumPy, for good, whatever NumPy lets go of (torch.Tensor.numpy). It does not keep share_memory_()
    from moving them. Tensors that are not plain memory are left as they are.
    """
    import torch

    with suppress(RuntimeError, TypeError), torch.no_grad():
        torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()

"""Storages of PyTorch tensors, whose memory PyTorch could replace while it is registered."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["hold"]


def hold(tensor: torch.Tensor) -> None:
    """Make PyTorch refuse to resize the storage of a CPU tensor from now on: resize_(), untyped_storage().resize_().

    Otherwise its bytes would go back to the allocator while devices and peers still write there. PyTorch does the same,
    for good, for storage shared with NumPy (torch.Tensor.numpy). It does not keep share_memory_()
    from moving the storage. Tensors that are not plain memory are left alone. RuntimeWarning if PyTorch cannot do it.
    """
    try:
        storage = tensor.untyped_storage()
    except RuntimeError:  # sparse tensors have none
        return
    resizable = getattr(storage, "resizable", None)  # newer PyTorch: already held
    if resizable is not None and not resizable():
        return
    import torch

    try:
        with torch.no_grad():
            torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
    except (RuntimeError, TypeError) as error:  # under FakeTensorMode; without NumPy
        warnings.warn(
            f"PyTorch cannot be kept from resizing a registered tensor ({error}): do not resize it",
            RuntimeWarning,
            stacklevel=2,
        )

"""Storages of PyTorch's tensors, which can be given other bytes while they are registered."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["hold"]


def hold(tensor: torch.Tensor) -> None:
    """Have PyTorch refuse from now on to resize the storage of a tensor of the CPU: resize_(), untyped_storage().resize_().

    Without that its bytes would go back to the allocator while devices and peers still write there. PyTorch does so with
    what it shares with NumPy, for good, whatever NumPy lets go of (torch.Tensor.numpy). It does not keep share_memory_()
    from moving them. Tensors that are not plain memory are left as they are. RuntimeWarning where PyTorch cannot do so.
    """
    try:
        storage = tensor.untyped_storage()
    except RuntimeError:  # sparse ones have none
        return
    resizable = getattr(storage, "resizable", None)  # newer PyTorch: it has been held already
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

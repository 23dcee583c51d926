"""Tensors as the calls of a World take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerohop.torch.foreign import torch


def only(tensors: Sequence[Any], what: str) -> Any:
    """A call of torch.distributed has lists of one tensor, from when one process drove several GPUs."""
    if len(tensors) != 1:
        raise ValueError(f"{what}: one tensor for each call, not {len(tensors)}")
    return tensors[0]


def read(tensor: Any) -> Any:
    """For a tensor that is sent; a copy of it if it has gaps."""
    _check(tensor)
    made = tensor.detach().resolve_conj().resolve_neg().contiguous()
    _follow_current_stream(made)
    return made


def written(tensor: Any) -> Any:
    """The same memory. Raises ValueError."""
    _check(tensor)
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            "a tensor is written that is the conjugate or the negative view of another one: write to that, or to a copy"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} is written, and not contiguous: write "
            "to one that is, and copy from that"
        )
    made = tensor.detach()
    _follow_current_stream(made)
    return made


def _check(tensor: Any) -> None:
    if tensor.layout != torch.strided:
        raise ValueError(
            f"a tensor of layout {tensor.layout} does not go as a whole: send its parts"
        )


def _follow_current_stream(tensor: Any) -> None:
    """Transfers begin behind what the default stream was given before: it gets to wait for the current one."""
    if tensor.is_cuda:
        current = torch.cuda.current_stream(tensor.device)
        default = torch.cuda.default_stream(tensor.device)
        if current != default:
            default.wait_stream(current)

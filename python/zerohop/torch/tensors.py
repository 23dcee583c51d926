"""Tensors in the form that the calls of a World take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerohop.torch.foreign import torch


def only(tensors: Sequence[Any], what: str) -> Any:
    """torch.distributed passes lists of one tensor, from the time when one process drove several GPUs."""
    if len(tensors) != 1:
        raise ValueError(f"{what}: one tensor per call, not {len(tensors)}")
    return tensors[0]


def read(tensor: Any) -> Any:
    """The tensor to send, or a copy of it if it has gaps."""
    _check(tensor)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def reduced(tensor: Any) -> Any:
    """The memory of a tensor that a reduction changes in place; one of a host may have gaps. Raises ValueError."""
    return written(tensor, gaps=tensor.device.type == "cpu")


def written(tensor: Any, *, gaps: bool = False) -> Any:
    """The memory of an output tensor. gaps: whether it may have gaps. Raises ValueError."""
    _check(tensor)
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            "an output tensor is a conjugate or negative view of another one: write to that, or to a copy"
        )
    if not gaps and not tensor.is_contiguous():
        raise ValueError(
            f"an output tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not contiguous: write "
            "to a contiguous one, and copy from that"
        )
    return tensor.detach()


def check_parts(what: str, whole: Any, part: Any, ranks: int) -> None:
    """Raises ValueError: `whole` does not hold a tensor like `part` of every rank."""
    if whole.dtype != part.dtype:
        raise ValueError(
            f"{what}: one tensor is of {whole.dtype}, the other of {part.dtype}: give two of one dtype"
        )
    if whole.numel() != ranks * part.numel():
        raise ValueError(
            f"{what}: a tensor of {whole.numel()} elements does not hold {ranks} parts of {part.numel()}, one per rank: "
            f"give one of {ranks * part.numel()}"
        )


def _check(tensor: Any) -> None:
    if tensor.layout != torch.strided:
        raise ValueError(
            f"a tensor of layout {tensor.layout} cannot be sent as a whole: send its parts"
        )


def follow_current_stream(tensor: Any) -> Any:
    """Makes the default stream wait for the current one: transfers start after earlier work in the default stream."""
    if tensor.is_cuda:
        current = torch.cuda.current_stream(tensor.device)
        default = torch.cuda.default_stream(tensor.device)
        if current != default:
            default.wait_stream(current)
    return tensor

"""The operations of torch.distributed, as a World takes them."""

from __future__ import annotations

from typing import Any

from zerohop.torch.foreign import dist

_NAMES = {
    "SUM": "sum",
    "AVG": "avg",
    "PRODUCT": "prod",
    "MIN": "min",
    "MAX": "max",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
}


def reduction(op: Any) -> dict[str, Any]:
    """The arguments op= and factor=. Raises ValueError."""
    kinds = dist.ReduceOp.RedOpType
    for name, ours in _NAMES.items():
        if op == getattr(kinds, name):
            return {"op": ours}
    if op != kinds.PREMUL_SUM:
        raise ValueError(f"there is no reduction {op}")
    _, factor = op.__getstate__()  # a number, or a tensor of one element
    return {"op": "premul_sum", "factor": float(factor)}

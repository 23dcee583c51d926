"""What ``help()`` of each collective says about the arguments that several of them have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])

_ALL = """
        stream: a GPU stream, whose work so far the call waits for; default: the default streams of the arrays' GPUs.
        timeout: seconds, for the whole call; default: the Endpoint's.
        wait: True returns when it is complete. False returns at once: the arrays belong to the call until ``.wait()`` of what it
            returned has returned.

        Returns a Collective{returns}. Raises TypeError, ValueError, IndexError for wrong arguments; then nothing has happened. PeerLost, TransferTimeout,
        CudaError, ValueError (ranks have called different things) end the World's collectives on all of its ranks. More:
        ``help(zerohop.collectives.{where})``.
        """
_REDUCTIONS = """
        op: "sum", "prod", "min", "max" (NaN if any is NaN), "avg" (of floats), "premul_sum" (the sum times `factor`), "band", "bor",
            "bxor" (bits of integers), "land", "lor" (logical). The same on all ranks, as is the dtype: integers, bool, float16, bfloat16,
            float32, float64, complex; TypeError for an op that it does not have.
        factor: a number, for "premul_sum" only.
"""


def collective(method: _Method) -> _Method:
    return _extended(method, _ALL.format(returns="", where="CollectiveCalls"))


def reduction(*, of_numbers: bool) -> Callable[[_Method], _Method]:
    """of_numbers: whether the call takes a number as well as an array."""
    returns = ", or for a number the result" if of_numbers else ""
    text = _REDUCTIONS.rstrip() + _ALL.format(returns=returns, where="ReductionCalls")
    return lambda method: _extended(method, text)


def _extended(method: _Method, text: str) -> _Method:
    if method.__doc__ is not None:  # python -OO drops it
        method.__doc__ = method.__doc__.rstrip() + text
    return method

"""Checks numeric arguments; errors name the argument."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsFloat


def whole(what: str, value: Any) -> int:
    """Returns an integer argument. Raises TypeError."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an integer, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:  # an array of several elements
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}") from None


def seconds(value: Any, what: str = "timeout") -> float:
    """Returns a timeout. Raises TypeError, ValueError."""
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{what} must be a finite number of seconds >= 0, not {value}")
    return float(value)

"""The result of one check: a state, the evidence for it, and a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# absent: there is nothing to check here (no GPU, no RDMA device); this is not a fault.
State = Literal["ok", "warn", "fail", "absent"]


@dataclass(frozen=True)
class Finding:
    name: str
    state: State
    evidence: str
    fix: str = ""  # the remedy, for warn and fail


def worst(states: list[State]) -> State:
    """The worst of several states; absent only if all are."""
    order: tuple[State, ...] = ("fail", "warn", "ok")
    return next((state for state in order if state in states), "absent")

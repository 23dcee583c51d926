"""What one check found: a state, the evidence for it, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# absent: there is nothing to check here (no GPU, no RDMA device), which is no fault.
State = Literal["ok", "warn", "fail", "absent"]


@dataclass(frozen=True)
class Finding:
    name: str
    state: State
    evidence: str
    fix: str = ""  # a sentence that helps, for warn and fail


def worst(states: list[State]) -> State:
    """The state that several things have together; absent only when all are."""
    order: tuple[State, ...] = ("fail", "warn", "ok")
    return next((state for state in order if state in states), "absent")

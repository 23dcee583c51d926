"""The result of one check: a state, the evidence for it, and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def gathered(name: str, lines: Sequence[str], fixes: Iterable[str], without: str) -> Finding:
    """Of several devices: a line of evidence for each, and remedies. without: why there are no lines."""
    if not lines:
        return Finding(name, "absent", without)
    remedies = "; ".join(dict.fromkeys(fixes))
    return Finding(name, "warn" if remedies else "ok", "; ".join(lines), remedies)

"""One step: what it proves, how it ended, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["pass", "fail", "not possible here", "not run"]
PASS: Outcome = "pass"
FAIL: Outcome = "fail"
IMPOSSIBLE: Outcome = "not possible here"
NOT_RUN: Outcome = "not run"

Figures = Mapping[str, Any]  # by name: text, or numbers with the unit in the name


class Stop(Exception):
    """Ends a step with another outcome than `pass`."""

    outcome: Outcome = FAIL

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy


class Failed(Stop):
    """What should work does not."""


class Impossible(Stop):
    """The device, or what it runs on, does not have this: no fault."""

    outcome = IMPOSSIBLE


class NotRun(Stop):
    """Something is missing that has nothing to do with the device: a GPU, a program."""

    outcome = NOT_RUN


@dataclass(frozen=True)
class Step:
    """needs: names of steps it stands on; it is not run unless they pass. seconds: after which it counts as hung."""

    name: str
    proves: str
    run: Callable[[Any], Figures]
    needs: tuple[str, ...] = ()
    seconds: float = 30.0


@dataclass(frozen=True)
class Result:
    name: str
    proves: str
    outcome: Outcome
    cause: str = ""
    remedy: str = ""
    seconds: float = 0.0
    figures: Figures = field(default_factory=dict)


class Steps:
    """Steps in their order, each a function of the Setup."""

    def __init__(self) -> None:
        self.all: list[Step] = []

    def add(
        self, name: str, proves: str, needs: tuple[str, ...] = (), seconds: float = 30.0
    ) -> Callable[[Callable[[Any], Figures]], Callable[[Any], Figures]]:
        def keep(run: Callable[[Any], Figures]) -> Callable[[Any], Figures]:
            self.all.append(Step(name, proves, run, needs, seconds))
            return run

        return keep

"""Ways that calls take in a process: those of a GPU's arrays, and those of calls that stop after each step."""

from collections.abc import Callable
from typing import Any

from zerohop._world.deadline import Deadline
from zerohop.collectives import desk
from zerohop.collectives.blocks import Block

_GIVEN = ("array", "out", "parts")  # names of the program's arrays
_elsewhere = False


def put_elsewhere(elsewhere: bool) -> None:
    """From now on: whether the arrays of this process count as ones that no CPU reaches. Needs watch()."""
    global _elsewhere
    _elsewhere = elsewhere


def watch() -> None:
    Block.on_host = property(  # type: ignore[assignment,method-assign]
        lambda block: not (_elsewhere and block.flat.what.startswith(_GIVEN))
    )
    for name in ("at_once", "pair_at_once"):
        setattr(desk.Desk, name, _long_way(getattr(desk.Desk, name)))


def _long_way(short: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: None if _elsewhere else short(self, *given)


def stop_after_each_step() -> None:
    """In this process: calls look whether others live whenever nothing has arrived."""
    desk.SLICE = 0.0
    Deadline.slice = property(lambda deadline: 0.0)  # type: ignore[assignment,method-assign]

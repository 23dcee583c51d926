"""What the messages of failures advise, in the terms of the interface that the program uses."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """The defaults are for a program that uses World itself."""

    whose: str = "World"
    lost: str = "world.state() shows which ranks are left, and world.shrink() makes a World of them"
    late: str = (
        "give a longer timeout= if it takes longer. The collectives of this World have ended with this call: "
        "make a World with another name, or shrink() this one"
    )
    # For calls after the end of the collectives: because of a loss, and because of something else.
    after_loss: str = "shrink() makes a World of the remaining ranks"
    after_end: str = "Make a World with another name, or shrink() this one"

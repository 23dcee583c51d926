"""A rank that stands still in the middle of a collective, in several Worlds at once, to be killed or stopped there.

Run as `python -m support.mid_call` by test_collectives_mid_call.py, whose ranks are the others.
"""

import faulthandler
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zerohop as zh
from zerohop._world.deadline import SLICE, Deadline
from zerohop.collectives import desk, exchange

from support.attempt import Attempt
from support.patience import patient
from support.spawned import obey

SIZE = 3
LAST = SIZE - 1  # the rank that stands still
PIECE = 192 << 10  # bytes, in these tests
TIMEOUT = patient(60.0)  # seconds: what ends a call here is not its timeout

# Where the last rank stands still.
FIRST = "before it has sent anything"
WAITS = "when it has done what it can do alone"  # the others come later
PIECES = "after some pieces"


class Case(NamedTuple):
    kind: str
    nbytes: int
    moment: str
    root: int = LAST

    @property
    def name(self) -> str:
        return f"{self.kind} of {self.nbytes} bytes, root {self.root}, {self.moment}"


def make_world(directory: Path, rank: int, case: Case, **options: Any) -> zh.World:
    options = {"device": "soft0", "timeout": TIMEOUT, **options}
    return zh.World(directory, rank, SIZE, name=case.name, **options)


def meet(world: Any) -> None:
    """All ranks are connected: their next small calls take the short way."""
    for _ in range(2):
        world.all_reduce(1)
        world.barrier()


def call(world: Any, case: Case, array: np.ndarray) -> None:
    size, rank, root = world.size, world.rank, case.root
    many, out = np.full((size, len(array)), 1 + rank, np.uint8), np.zeros((size, len(array)), "u1")
    is_root = rank == root
    calls: dict[str, Callable[[], Any]] = {
        "broadcast": lambda: world.broadcast(array, root),
        "scatter": lambda: world.scatter(out[0], many if is_root else None, root),
        "gather": lambda: world.gather(out if is_root else None, array, root),
        "all_gather": lambda: world.all_gather(out, array),
        "all_to_all": lambda: world.all_to_all(out, many),
        "all_reduce": lambda: world.all_reduce(array, "min"),
        "reduce": lambda: world.reduce(array, root, "min"),
        "scan": lambda: world.scan(array, "min"),
        "reduce_scatter": lambda: world.reduce_scatter(out[0], many, "min"),
        "send_recv": lambda: world.send_recv(
            to=(rank + 1) % size, array=array, from_=(rank - 1) % size, out=out[0]
        ),
    }
    calls[case.kind]()


def calls(world: Any, case: Case, array: np.ndarray) -> None:
    """That, and one that needs all ranks: who has done its part before a loss learns of it there."""
    call(world, case, array)
    world.all_gather(np.zeros(SIZE), np.zeros(1))


def array_of(rank: int, case: Case) -> np.ndarray:
    return np.full(case.nbytes, 1 + rank, np.uint8)


class Standing:
    """The last rank in one World. Its call looks here whenever it is about to wait."""

    def __init__(self, world: Any, case: Case, go_on: threading.Event) -> None:
        self._world, self._case, self._go_on = world, case, go_on
        self._array = array_of(LAST, case)
        self.looks = 0
        self.exchange: Any = None  # in the engine, while it runs
        self.there = threading.Event()
        self.ended = Attempt(self._call)

    def _call(self) -> None:
        here.standing = self
        try:
            calls(self._world, self._case, self._array)  # perhaps from what the others sent before
            self._world.all_gather(np.zeros(SIZE), np.zeros(1))
        finally:
            self.there.set()

    def look(self) -> None:
        self.looks += 1
        if self._reached() and not self.there.is_set():
            self.there.set()
            self._go_on.wait()

    def _reached(self) -> bool:
        if self._case.moment == FIRST:
            return True
        if self._case.moment == WAITS:
            return self.looks > 1
        # What the engine does in steps changes the array meanwhile: the results of others are smaller.
        changed = self._array[:: len(self._array) // 64] <= LAST
        begun = bool(changed.any()) and not changed.all()
        steps = 0 if self.exchange is None else self.exchange.steps
        return steps > (1 if self._case.kind == "all_gather" else 2) or begun


here = threading.local()  # standing: of the call in this thread


def _standing() -> Standing | None:
    return getattr(here, "standing", None)


def _slice(deadline: Deadline) -> float:
    standing = _standing()
    if standing is None or standing.there.is_set():
        return min(SLICE, deadline.left)
    standing.look()
    return 0.0


def _by_steps(at_once: Callable[..., Any]) -> Callable[..., Any]:
    def of(self: desk.Desk, *given: Any) -> Any:
        """A call that is to stand still before it has sent anything takes the long way."""
        standing = _standing()
        if standing is not None and standing._case.moment == FIRST:
            return None
        return at_once(self, *given)

    return of


def _seen(go_on: Callable[..., Any]) -> Callable[..., Any]:
    def going_on(self: exchange.Exchange, *given: Any) -> Any:
        standing = _standing()
        if standing is not None:
            standing.exchange = self._exchange
        return go_on(self, *given)

    return going_on


def watch_calls() -> None:
    """Makes the calls of this process look."""
    exchange.PIECE = PIECE
    desk.SLICE = 0.0
    Deadline.slice = property(_slice)  # type: ignore[method-assign,assignment]
    desk.Desk.at_once = _by_steps(desk.Desk.at_once)  # type: ignore[method-assign]
    desk.Desk.pair_at_once = _by_steps(desk.Desk.pair_at_once)  # type: ignore[method-assign]
    exchange.Exchange._go_on = _seen(exchange.Exchange._go_on)  # type: ignore[method-assign]


class Victim:
    def __init__(self, directory: Path) -> None:
        self._directory, self._go_on = directory, threading.Event()
        self._standing: dict[str, Standing] = {}

    def stand(self, cases: list[Case], options: dict[str, Any]) -> list[str]:
        """Returns when all calls stand still; those that have ended instead."""
        worlds = [make_world(self._directory, LAST, case, **options) for case in cases]
        for each in [Attempt(meet, world) for world in worlds]:
            each.value(TIMEOUT)
        for world, case in zip(worlds, cases, strict=True):
            self._standing[case.name] = Standing(world, case, self._go_on)
        wrong = []
        for name, each in self._standing.items():
            assert each.there.wait(TIMEOUT), f"{name}: it is not there yet"
            if not each.ended.pending:
                each.ended.value()
                wrong.append(name)
        return wrong

    def go_on(self) -> dict[str, str]:
        """How the calls end."""
        self._go_on.set()
        return {name: _ending(each.ended) for name, each in self._standing.items()}


def _ending(attempt: Attempt) -> str:
    try:
        attempt.value(TIMEOUT)
    except Exception as error:  # noqa: BLE001  the test looks at it
        return f"{type(error).__name__}: {error}"
    return "no error"


def main(descriptor: str, directory: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    watch_calls()
    victim = Victim(Path(directory))
    obey(Connection(int(descriptor)), lambda name, *given: getattr(victim, name)(*given))


if __name__ == "__main__":
    main(*sys.argv[1:])

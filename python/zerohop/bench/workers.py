"""Contenders that are worker processes of this benchmark: the requests to them, and their main functions."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from zerohop.bench.placement import FREE, place
from zerohop.bench.plan import (
    Contender,
    FigureFailed,
    Found,
    Order,
    PeerFailed,
    first_times,
    percentiles,
)
from zerohop.bench.stopping import die_with_parent
from zerohop.errors import Error, RouteUnavailable
from zerohop.local import Link, Ranks

BOUND_S = 120.0  # for one answer; the first includes the import of PyTorch
MOST_TIMES = 200_000
BOTH_WAYS = "both"  # a test in which both ends send equally much
Result = TypeVar("Result")


class Absent(NamedTuple):
    """The answer of a worker that has no figure."""

    reason: str
    failed: bool = False  # FigureFailed: it should work


class Player:
    """One worker process of a contender, made with its Link. A test is a method of (nbytes, times)."""

    def facts(self) -> Mapping[str, Any]:
        """For the header of the rows; ours also has "device", "route" and "reason"."""
        return {}

    def perform(self, order: Order) -> Any:
        measure: Callable[[int, int], Any] | None = getattr(self, order.test, None)
        return Absent("") if measure is None else measure(order.nbytes, order.times)

    def close(self) -> None: ...


class Workers(Contender):
    """A contender of `size` processes, each with a Player made by `make(link, *arguments)`.

    An answer that takes longer than `bound` seconds ends with RankFailed. anew: new workers for every figure.
    launch: starts them, instead of Ranks.
    """

    def __init__(
        self,
        name: str,
        size: int,
        make: Callable[..., Player],
        *arguments: Any,
        bound: float = BOUND_S,
        anew: bool = False,
        launch: Callable[..., Any] = Ranks,
    ) -> None:
        self.name = name
        self._size = size
        self._make = (make, *arguments)
        self._bound = bound
        self._launch = launch
        self._anew = anew
        self._placement = FREE
        self._ranks: Any = None

    def start(self, placement: str = FREE) -> Any:
        """Its workers, started unless they run."""
        self._placement = placement
        if self._ranks is None:
            what = work, self._size, placement, *self._make
            self._ranks = self._launch(*what, silence=self._bound)
        return self._ranks

    def ask(self, order: Any) -> list[Any]:
        """Every worker's answer. Raises PeerFailed (FigureFailed) for an Absent one, RankFailed."""
        answers: list[Any] = self.start(self._placement).ask(order)
        for answer in answers:
            if isinstance(answer, Absent):
                raise (FigureFailed if answer.failed else PeerFailed)(answer.reason)
        return answers

    def facts(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.ask("facts")[0]
        return found

    def measure(self, order: Order, seconds: float) -> Found:
        found = paced(self.ask, order, seconds)
        if self._anew:
            self.finish()
        return found

    def pause(self) -> None:
        if self._ranks is not None:
            self._ranks.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._ranks is not None:
            self._ranks.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Lets the workers close properly. Raises RankFailed."""
        if self._ranks is not None:
            self._ranks.tell(None)
            self._ranks.results()
        self.close()

    def close(self) -> None:
        """Ends the workers at once."""
        if self._ranks is not None:
            self._ranks.__exit__(None, None, None)
            self._ranks = None


def work(link: Link, placement: str, make: Callable[..., Player], *arguments: Any) -> None:
    """The main function of a worker: binds it, and ensures that it does not outlive its parent."""
    die_with_parent()
    place(placement, link.rank)
    serve(link, make, *arguments)


def serve(link: Link, make: Callable[..., Player], *arguments: Any) -> None:
    """Answers "facts" and Orders until None arrives.

    A PeerFailed becomes the answer to the order, or to all orders if no player could be made; any other exception
    ends the worker.
    """
    try:
        player = make(link, *arguments)
    except PeerFailed as error:
        while link.order() is not None:
            link.answer(Absent(str(error)))
        return
    while (order := link.order()) is not None:
        try:
            link.answer(player.facts() if order == "facts" else player.perform(order))
        except PeerFailed as error:
            link.answer(Absent(str(error), isinstance(error, FigureFailed)))
    link.exchange(None)  # neither side closes while the other still finishes
    player.close()


def together(link: Link, act: Callable[[], Result]) -> Result:
    """Returns the result of `act`, once every rank has finished its own. If one fails, all ranks raise
    PeerFailed (no such route here) or FigureFailed (another error).
    """
    trouble: PeerFailed | None = None
    try:
        result = act()
    except RouteUnavailable as error:
        trouble = PeerFailed(f"not available: {error}".splitlines()[0])
    except (Error, PeerFailed) as error:
        trouble = FigureFailed(f"rank {link.rank}: {type(error).__name__}: {error}")
    for said in link.exchange(trouble):
        if said is not None:
            raise said
    return result


def require_module(name: str, remedy: str) -> Any:
    """Imports a module in the process that uses it. Raises PeerFailed with the remedy."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PeerFailed(f"{name} cannot be imported ({error}): {remedy}") from None


def paced(ask: Callable[[Order], Sequence[Any]], order: Order, seconds: float) -> Found:
    """The figures of a run of about `seconds`, unless the order has a number of times.

    ask: makes every process execute the order. Each answers with the seconds of every repetition, or with
    the total seconds, or the first process with the figures themselves.
    """
    given = order.times > 0
    if not given:
        order = order._replace(times=first_times(order.test, order.nbytes))
    answers = ask(order)
    if isinstance(answers[0], dict):
        return dict(answers[0])
    while not given and (times := _more_times(order.times, _spent(answers), seconds)):
        order = order._replace(times=times)
        answers = ask(order)
    if not isinstance(answers[0], (int, float)):
        return percentiles(answers[0])
    rate = order.times / max(answers)  # with two active ends: until the later one is done
    if order.test.endswith("_rate"):
        return {"rate": rate}
    return {"bandwidth": order.nbytes * rate * (2 if order.test == BOTH_WAYS else 1)}


def _more_times(times: int, spent: float, seconds: float) -> int:
    """The number of repetitions in about `seconds`, if that is much more than `times`, else 0.

    The first repetitions of a turn are slower: processes that were stopped need up to 10 ms until each
    has its own core. So a short run does not show the pace of a long one.
    """
    more = min(int(times * seconds / max(spent, 1e-9)), MOST_TIMES)
    return more if more > 2 * times else 0


def _spent(answers: Sequence[Any]) -> float:
    """Seconds. In a ping-pong both ends report halves of every round trip."""
    if isinstance(answers[0], (int, float)):
        return float(max(answers))
    return float(sum(sum(samples) for samples in answers))

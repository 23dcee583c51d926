"""How long to measure, and whose turn it is: ours and theirs alternate at every figure of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from zerohop.bench.peer import FigureFailed, PeerFailed
from zerohop.bench.plan import Order, first_times
from zerohop.errors import Error, RouteUnavailable
from zerohop.local import Link, RankFailed, Ranks

MOST_TIMES = 200_000
OURS = "zerohop"  # of the contestants
ENDING = "its orderly end"
Result = TypeVar("Result")
Ask = Callable[[Order], tuple[Sequence[float], float]]  # samples (of a latency), seconds in all


class Absent(NamedTuple):
    """What a worker answers in place of a figure."""

    reason: str
    failed: bool = False  # FigureFailed: it should have been there


def timed(
    ask: Ask, test: str, nbytes: int, driver: str, seconds: float
) -> tuple[Sequence[float], float, int]:
    """(samples, seconds in all, how many times) of a run of about `seconds`."""
    times = first_times(test, nbytes)
    samples, elapsed = ask(Order(test, driver, nbytes, times))
    more = int(times * seconds / elapsed)
    if more > 2 * times:
        times = min(MOST_TIMES, more)
        samples, elapsed = ask(Order(test, driver, nbytes, times))
    return samples, elapsed, times


def serve(link: Link, make: Callable[..., Any], *arguments: Any) -> None:
    """A worker of a Contestant: answers "facts" and Orders by the methods of `make(link, ...)`.

    A PeerFailed, there or in a method, is the answer to the order, and to all of them if nothing could
    be made; anything else ends the worker.
    """
    try:
        player = make(link, *arguments)
    except PeerFailed as error:
        while link.order() is not None:
            link.answer(Absent(str(error)))
        return
    while (order := link.order()) is not None:
        link.answer(player.facts() if order == "facts" else _perform(player, order))
    link.exchange(None)  # neither side closes while the other still finishes
    player.close()


def _perform(player: Any, order: Order) -> Any:
    measure = getattr(player, order.test, None)
    if measure is None:
        return Absent("")
    try:
        return measure(order.nbytes, order.times)
    except PeerFailed as error:
        return Absent(str(error), isinstance(error, FigureFailed))


def together(link: Link, act: Callable[[], Result]) -> Result:
    """What `act` returns, once every rank has done its own. Raises in all ranks where one could not:
    PeerFailed if there is no such route here, FigureFailed after another error.
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


class Contestant:
    """Worker processes that measure in one way, ours or a peer's: `size` times `serve(link, make, ...)`.

    What takes longer than `bound` seconds is given up with RankFailed.
    """

    def __init__(
        self, name: str, size: int, bound: float, make: Callable[..., Any], *arguments: Any
    ) -> None:
        self.name = name
        self._size = size
        self._bound = bound
        self._arguments = (make, *arguments)
        self._ranks: Ranks | None = None

    def start(self) -> Ranks:
        """Its workers, begun unless they run."""
        if self._ranks is None:
            self._ranks = Ranks(serve, self._size, *self._arguments, silence=self._bound)
        return self._ranks

    def ask(self, order: Any) -> list[Any]:
        """Every worker's answer. Raises PeerFailed (FigureFailed) for an Absent one, RankFailed."""
        answers = self.start().ask(order)
        for answer in answers:
            if isinstance(answer, Absent):
                raise (FigureFailed if answer.failed else PeerFailed)(answer.reason)
        return answers

    def finish(self) -> None:
        """Lets the workers close in order. Raises RankFailed."""
        if self._ranks is not None:
            self._ranks.tell(None)
            self._ranks.results()
        self.close()

    def close(self) -> None:
        """Ends the workers as they are."""
        if self._ranks is not None:
            self._ranks.__exit__(None, None, None)
            self._ranks = None


class Absences:
    """Who was not measured, where and why: (contestant, test or "" for all) -> a sentence.

    failures: those that make the run a failure.
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], str] = {}
        self.failures: list[str] = []

    def note(self, name: str, test: str, reason: str) -> None:
        self.reasons.setdefault((name, test), reason)

    def covers(self, name: str, test: str) -> bool:
        return (name, "") in self.reasons or (name, test) in self.reasons

    def told(self) -> list[dict[str, str]]:
        """Those with a reason to tell, for the header of the rows."""
        return [
            {"impl": name, "test": test, "reason": reason}
            for (name, test), reason in self.reasons.items()
            if reason
        ]


def guarded(
    absences: Absences, contestant: Contestant, test: str, act: Callable[[], Result]
) -> Result | None:
    """What `act` returns; None, and a note why, where a peer cannot. Raises RankFailed of ours alone,
    and PeerFailed of ours in general (no test)."""
    ours = contestant.name == OURS
    try:
        return act()
    except PeerFailed as error:
        if ours and not test:
            raise
        absences.note(contestant.name, test, str(error))
        if ours and isinstance(error, FigureFailed):
            absences.failures.append(f"{test}: {error}")
    except RankFailed as error:
        if ours:
            raise
        if test == ENDING:
            absences.note(contestant.name, ENDING, describe(error))
        else:  # what was measured before stays
            since = f"from {test} on: " if test else ""
            absences.note(contestant.name, "", since + describe(error))
        contestant.close()
    return None


def describe(failure: RankFailed) -> str:
    """One line of it, for a table."""
    return " ".join(str(failure).split())[:300]

"""Who can be asked for a figure, how long each is measured, and what is told of who cannot."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from zerohop.bench.peer import PLACEMENT, FigureFailed, PeerFailed
from zerohop.bench.placement import FREE, place
from zerohop.bench.plan import Order, first_times
from zerohop.bench.stopping import die_with_parent
from zerohop.errors import Error, RouteUnavailable
from zerohop.local import Link, RankFailed, Ranks
from zerohop.stats import percentiles

MOST_TIMES = 200_000
OURS = "zerohop"  # of the contestants
ENDING = "its orderly end"
Result = TypeVar("Result")
Found = dict[str, float]  # a value by metric
BOTH_WAYS = "both"  # a test of which every end sends as much


class Player(Protocol):
    """Who measures in one way, ours or a peer's. Each method raises PeerFailed, or RankFailed when it has died."""

    name: str

    def start(self) -> object: ...

    def facts(self) -> Mapping[str, Any]:
        """For the header of the rows; "device" and "route" of ours, too."""
        ...

    def measure(self, order: Order, seconds: float) -> Found: ...

    def pause(self) -> None:
        """It is others' turn: its processes take no processor until resume()."""
        ...

    def resume(self) -> None: ...

    def finish(self) -> None:
        """An orderly end."""
        ...

    def close(self) -> None:
        """An end as it is."""
        ...


class Absent(NamedTuple):
    """What a worker answers in place of a figure."""

    reason: str
    failed: bool = False  # FigureFailed: it should have been there


def paced(ask: Callable[[Order], Sequence[Any]], order: Order, seconds: float) -> Found:
    """The figures of a run of about `seconds`, unless the order says how often.

    ask: has every process carry the order out, of which each answers with the seconds of every time, or with
    those of all times together, or the first with the figures themselves.
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
    rate = order.times / max(answers)  # of two active ends: until the later one is done
    if order.test.endswith("_rate"):
        return {"rate": rate}
    return {"bandwidth": order.nbytes * rate * (2 if order.test == BOTH_WAYS else 1)}


def _more_times(times: int, spent: float, seconds: float) -> int:
    """How often it takes about `seconds`, if that is much more than `times`, else 0.

    The first times of a turn are slower than what follows: processes that were stopped need up to 10 ms until each
    has a core of its own. So a short run does not tell the pace of a long one.
    """
    more = min(int(times * seconds / max(spent, 1e-9)), MOST_TIMES)
    return more if more > 2 * times else 0


def _spent(answers: Sequence[Any]) -> float:
    """Seconds. Of a ping-pong both ends tell halves of every round trip."""
    if isinstance(answers[0], (int, float)):
        return float(max(answers))
    return float(sum(sum(samples) for samples in answers))


def require_module(name: str, remedy: str) -> Any:
    """Imported where it is used, by a process of its own. Raises PeerFailed with what installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PeerFailed(f"{name} cannot be imported ({error}): {remedy}") from None


def serve(link: Link, make: Callable[..., Any], *arguments: Any) -> None:
    """A worker of a Contestant: answers "facts" and Orders by what `make(link, ...)` makes.

    Orders go to its `perform(order)` if it has that, else to the method that is named like the test. A PeerFailed, there or in a method, is the answer to the order, and to all of them if nothing could
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


def _serve_placed(link: Link, placement: str, make: Callable[..., Any], *arguments: Any) -> None:
    die_with_parent()
    place(placement, link.rank)
    serve(link, make, *arguments)


def _perform(player: Any, order: Order) -> Any:
    perform: Callable[[Order], Any] | None = getattr(player, "perform", None)
    measure: Callable[[int, int], Any] | None = getattr(player, order.test, None)
    try:
        if perform is not None:
            return perform(order)
        return measure(order.nbytes, order.times) if measure is not None else Absent("")
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
    """The Player of worker processes: `size` times `serve(link, make, ...)`, placed.

    What takes longer than `bound` seconds is given up with RankFailed. anew: other workers for every figure.
    """

    def __init__(
        self,
        name: str,
        size: int,
        bound: float,
        make: Callable[..., Any],
        *arguments: Any,
        placement: str = FREE,
        anew: bool = False,
    ) -> None:
        self.name = name
        self._size = size
        self._bound = bound
        self._arguments = (placement, make, *arguments)
        self._anew = anew
        self._ranks: Ranks | None = None

    def start(self) -> Ranks:
        """Its workers, begun unless they run."""
        if self._ranks is None:
            self._ranks = Ranks(_serve_placed, self._size, *self._arguments, silence=self._bound)
        return self._ranks

    def ask(self, order: Any) -> list[Any]:
        """Every worker's answer. Raises PeerFailed (FigureFailed) for an Absent one, RankFailed."""
        answers = self.start().ask(order)
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


class Programs:
    """The Player of another project's programs, which are run anew for every figure.

    look: what they are, for the header. tests: what of ours they can do, from nbytes and seconds.
    placement: of what they run by run_pair().
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], Mapping[str, Any]],
        tests: Mapping[str, Callable[[int, float], Found]],
        placement: str = FREE,
    ) -> None:
        self.name = name
        self._placement = placement
        self.facts = look
        self._tests = tests

    def start(self) -> None: ...

    def measure(self, order: Order, seconds: float) -> Found:
        if order.test not in self._tests:
            raise PeerFailed("")
        before = PLACEMENT.set(self._placement)
        try:
            return self._tests[order.test](order.nbytes, seconds)
        finally:
            PLACEMENT.reset(before)

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


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
    absences: Absences, name: str, player: Player, test: str, act: Callable[[], Result]
) -> Result | None:
    """What `act` returns; None, and a note why, where a peer cannot. Raises RankFailed of ours alone.

    name: who it is in the notes.
    """
    ours = player.name == OURS
    try:
        return act()
    except PeerFailed as error:
        absences.note(name, test, str(error))
        if ours and isinstance(error, FigureFailed):
            absences.failures.append(f"{test}: {error}")
    except RankFailed as error:
        if ours:
            raise
        if test == ENDING:
            absences.note(name, ENDING, describe(error))
        else:  # what was measured before stays
            since = f"from {test} on: " if test else ""
            absences.note(name, "", since + describe(error))
        player.close()
    return None


def describe(failure: RankFailed) -> str:
    """One line of it, for a table."""
    return " ".join(str(failure).split())[:300]

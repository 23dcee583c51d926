"""Runs the steps in a process of their own, and after each failure in a new one.

So a step that crashes or hangs costs that step and nothing else, and none finds what a failed one left: queue pairs in
error, a GPU's context that is lost.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from zerohop.errors import Error
from zerohop.local import Link, RankFailed, Ranks
from zerohop.verify.adapter import on_device, on_engine, on_gpu, on_queues, on_speed
from zerohop.verify.adapter.setup import Setup, Spec
from zerohop.verify.adapter.step import FAIL, NOT_RUN, PASS, Result, Step, Stop

if TYPE_CHECKING:
    from typing_extensions import Self

STEPS: tuple[Step, ...] = tuple(
    step for part in (on_device, on_queues, on_engine, on_speed, on_gpu) for step in part.STEPS.all
)
START_S = 60.0  # for a process, which imports NumPy
READY = -1  # asks whether it is there
REPORT_THIS = "report this with the whole page"
Run = Callable[[Setup, Step], Result]


def perform(setup: Setup, step: Step) -> Result:
    """The step's result; every exception is one."""
    begin = time.perf_counter()
    try:
        figures = step.run(setup)
    except Stop as stop:
        result = Result(step.name, step.proves, stop.outcome, stop.cause, stop.remedy)
    except Error as error:
        result = Result(step.name, step.proves, FAIL, f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 it is in the report; the other steps go on
        where = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        result = Result(step.name, step.proves, FAIL, cause, REPORT_THIS)
    else:
        result = Result(step.name, step.proves, PASS, figures=figures)
    return _timed(result, time.perf_counter() - begin)


def work(link: Link, spec: Spec, steps: Sequence[Step]) -> None:
    """The process: each order is the number of a step, READY, or None for the end."""
    setup = Setup(spec)
    while (number := link.order()) is not None:
        link.answer(perform(setup, steps[number]) if number != READY else None)
    with suppress(Error):
        setup.close()


class Runner:
    """A context manager. on_result: called with each result, at once."""

    def __init__(
        self,
        spec: Spec,
        steps: Sequence[Step] = STEPS,
        on_result: Callable[[Result], None] = lambda result: None,
    ) -> None:
        self._spec = spec
        self._steps = steps
        self._on_result = on_result
        self._process = ExitStack()
        self._ranks: Ranks | None = None
        self.results: dict[str, Result] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def run(self) -> None:
        for number, step in enumerate(self._steps):
            result = self._missing(step) or self._ask(number, step)
            self.results[step.name] = result
            self._on_result(result)
        if self._ranks is not None:
            with suppress(RankFailed):
                self._ranks.tell(None)
                self._ranks.results()

    def _missing(self, step: Step) -> Result | None:
        """The result of a step that stands on one that did not pass."""
        for name in step.needs:
            need = self.results[name]
            if need.outcome == NOT_RUN:
                return Result(step.name, step.proves, NOT_RUN, need.cause, need.remedy)
            if need.outcome != PASS:
                why = "failed" if need.outcome == FAIL else "is not possible here"
                return Result(step.name, step.proves, NOT_RUN, f"stands on {name!r}, which {why}")
        return None

    def _ask(self, number: int, step: Step) -> Result:
        begin = time.perf_counter()
        try:
            if self._ranks is None:
                started = Ranks(work, 1, self._spec, self._steps)
                self._ranks = self._process.enter_context(started)
                self._ranks.ask(READY, START_S)
            [result] = self._ranks.ask(number, step.seconds)
        except RankFailed as failure:
            self._end()
            cause = f"the process of this step {_ended(failure)}"
            took = time.perf_counter() - begin
            return _timed(Result(step.name, step.proves, FAIL, cause, REPORT_THIS), took)
        assert isinstance(result, Result)
        if result.outcome == FAIL:
            self._end()
        return result

    def _end(self) -> None:
        self._process.close()
        self._ranks = None


def _ended(failure: RankFailed) -> str:
    """Of "rank 0 was killed by SIGSEGV", or "no message from rank 0 for 30 s: gave up"."""
    text = str(failure)
    return text.removeprefix("rank 0 ") if failure.rank is not None else f"hangs: {text}"


def _timed(result: Result, seconds: float) -> Result:
    fields = {**result.__dict__, "seconds": round(seconds, 3)}
    return Result(**fields)

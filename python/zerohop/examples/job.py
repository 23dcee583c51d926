"""How the ranks of an example come to be: processes of this host that it starts, or those of a launcher."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zerohop.errors import Error
from zerohop.examples.failures import KernelFailed, OutOfStep, Stopped
from zerohop.launch import launched
from zerohop.local import Link, RankFailed, Ranks
from zerohop.world import World

__all__ = ["Report", "Ticker", "Work", "launched_size", "run"]

_LINE_S = 2.0  # between two lines on how far it is: a job that is done by then prints none
_REPORT_S = 0.2  # between two reports of a rank: each costs the process that waits a wake-up

Report = Callable[[str, int, int], None]  # what, done, of how many
Work = Callable[[World, Any, Report], Any]  # of a module: the ranks import it


class Ticker:
    """Says on stderr how far the job is, by a line now and then."""

    def __init__(self, name: str) -> None:
        self._name, self._due = name, time.monotonic() + _LINE_S

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _LINE_S
            print(f"{self._name}: {what}, {done} of {total}", file=sys.stderr, flush=True)


def launched_size() -> int | None:
    """Ranks of the job that a launcher (torchrun, mpirun, srun) has started this process for; None: there is none."""
    told = launched(os.environ)
    return None if told is None else told.size


def run(name: str, work: Work, spec: Any, ranks: int, expendable: Collection[int] = ()) -> Any:
    """Runs ``work(world, spec, report)`` on every rank; what it returned on rank 0, None on others of a launcher.

    expendable: ranks without which the others go on, where it starts them: a launcher ends them all.

    Raises Stopped, also when a rank was killed. Whatever ends it, Ctrl-C too, no process is left.
    """
    ticker = Ticker(name)
    try:
        if launched_size() is not None:
            return _joined(work, spec, ticker)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
        with (
            TemporaryDirectory(prefix="zerohop-") as store,
            Ranks(
                _started,
                ranks,
                work,
                spec,
                Path(store),
                on_report=_told(ticker),
                expendable=expendable,
            ) as running,
        ):
            return running.results()[0]
    except (Error, KernelFailed, OutOfStep, RankFailed) as error:
        raise Stopped(str(error)) from error


def _joined(work: Work, spec: Any, ticker: Ticker) -> Any:
    try:
        made = World.from_env()
    except (RuntimeError, ValueError) as error:  # what the launcher has told, and where ranks meet
        raise Stopped(str(error)) from error
    with made as world:
        result = work(world, spec, ticker if world.rank == 0 else _say_nothing)
        return result if world.rank == 0 else None


def _told(ticker: Ticker) -> Callable[[int, Any], None]:
    return lambda rank, report: ticker(*report)


def _say_nothing(what: str, done: int, total: int) -> None:
    """One rank says how far the job is."""


def _started(link: Link, work: Work, spec: Any, store: Path) -> Any:
    with World(store, link.rank, link.size, local_rank=link.rank) as world:
        return work(world, spec, _throttled(link) if link.rank == 0 else _say_nothing)


def _throttled(link: Link) -> Report:
    due = 0.0

    def report(what: str, done: int, total: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _REPORT_S
            link.report((what, done, total))

    return report

"""`zerohop verify`: tests the memory and the routes between two ends for a while, and reports."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from zerohop.bench.progress import Watch
from zerohop.doctor.far_end import second_process
from zerohop.endpoint import Endpoint
from zerohop.errors import Error
from zerohop.host import human_bytes
from zerohop.local import RankFailed
from zerohop.verify.target import TIMEOUT_S, serve
from zerohop.verify.tester import Tally, Tester
from zerohop.verify.ways import ROUTES, open_way

BY_HAND = "interrupted"  # the failure after Ctrl-C


@dataclass(frozen=True)
class Options:
    """peer: address of a listener; None: a second process on this host, with `nbytes` for each route."""

    minutes: float
    routes: tuple[str, ...] = ()  # empty: all available ones
    device: str | None = None
    peer: bytes | None = None
    nbytes: int = 64 << 20
    seed: int | None = None
    as_json: bool = False


@dataclass
class Result:
    seed: int
    seconds: float = 0.0
    tallies: list[Tally] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)  # routes, and why
    failure: str = ""  # the one that ended it early

    def good(self, wanted: Sequence[str]) -> bool:
        """Whether all wanted routes were tested, at least one, and nothing was wrong."""
        missing = [route for route in wanted if route in self.absent]
        return bool(self.tallies) and not self.errors and not self.failure and not missing

    @property
    def errors(self) -> int:
        return sum(tally.errors for tally in self.tallies)

    @property
    def interrupted(self) -> bool:
        return self.failure == BY_HAND

    def verdict(self, wanted: Sequence[str]) -> str:
        if not self.interrupted:
            return "no errors" if self.good(wanted) else "errors found"
        operations = sum(tally.operations for tally in self.tallies)
        moved = human_bytes(sum(tally.nbytes for tally in self.tallies))
        found = f"{self.errors} errors" if self.errors else "no mismatch"
        return f"interrupted after {operations} operations, {moved} moved: {found} so far"


def open_endpoint(options: Options) -> Endpoint:
    """Raises Error and ValueError if the settings allow none."""
    return Endpoint(options.device, timeout=TIMEOUT_S, p2p=1, integrity=1)


def run(options: Options, endpoint: Endpoint, console: Console) -> bool:
    """Whether there were no errors; prints the results, also before it raises KeyboardInterrupt. Closes the Endpoint."""
    result = verify(options, endpoint)
    good = result.good(options.routes)
    if options.as_json:
        print(json.dumps({"good": good, **asdict(result)}, indent=2))
    else:
        _print(result, result.verdict(options.routes), console)
    if result.interrupted:
        raise KeyboardInterrupt
    return good


def verify(options: Options, endpoint: Endpoint) -> Result:
    seed = secrets.randbits(32) if options.seed is None else options.seed
    result = Result(seed)
    begin = time.monotonic()
    try:
        target: Any = (
            second_process(serve, options.nbytes, options.device)
            if options.peer is None
            else nullcontext(options.peer)
        )
        with target as address, endpoint:
            _try(options, endpoint, address, result)
    except (Error, RankFailed) as error:
        result.failure = str(error)
    except KeyboardInterrupt:
        result.failure = BY_HAND
    finally:
        endpoint.close()
    result.seconds = time.monotonic() - begin
    return result


def _try(options: Options, endpoint: Endpoint, address: bytes, result: Result) -> None:
    peer = endpoint.connect(address)
    testers: list[Tester] = []
    for number, route in enumerate(options.routes or ROUTES):
        way = open_way(endpoint, peer, route)
        if isinstance(way, str):
            result.absent[route] = way
            continue
        testers.append(Tester(way, result.seed + number))
        result.tallies.append(testers[-1].tally)
    if testers:
        with Watch("zerohop verify") as watch:
            _take_turns(testers, options.minutes * 60, watch)
        for tester in testers:
            tester.finish()


def _take_turns(testers: Sequence[Tester], seconds: float, watch: Watch) -> None:
    """One pattern on each route in turn; every pattern at least once."""
    begin = time.monotonic()
    watch.expect(max(1, round(seconds)))
    steps, reported = [tester.rounds() for tester in testers], 0
    names: set[str] = set()
    while True:
        for tester, step in zip(testers, steps, strict=True):
            name = next(step)
            watch.at(f"{name} by {tester.tally.route}{_errors(testers)}")
        passed = time.monotonic() - begin
        while reported < min(passed, seconds) - 1:
            watch.advance()
            reported += 1
        if passed >= seconds and name in names:
            return
        names.add(name)


def _errors(testers: Sequence[Tester]) -> str:
    errors = sum(tester.tally.errors for tester in testers)
    return f", {errors} errors" if errors else ""


def _print(result: Result, verdict: str, console: Console) -> None:
    table = Table("route", title=f"zerohop verify, {result.seconds:.0f} s, seed {result.seed}")
    for title in ("operations", "moved", "errors"):
        table.add_column(title, justify="right")
    for tally in result.tallies:
        moved = human_bytes(tally.nbytes)
        table.add_row(tally.route, str(tally.operations), moved, str(tally.errors))
    console.print(table)
    for route, reason in result.absent.items():
        console.print(f"{route}: not available: {reason}", markup=False)
    for tally in result.tallies:
        for wrong in tally.wrong:
            place = f"bytes {wrong.offset} to {wrong.offset + wrong.nbytes - 1}"
            console.print(
                f"{wrong.route}, {place}, {wrong.pattern}, by {wrong.found_by}: {wrong.what}",
                markup=False,
            )
        if tally.errors > len(tally.wrong):
            console.print(f"{tally.route}: {tally.errors - len(tally.wrong)} more", markup=False)
    if result.failure and not result.interrupted:
        console.print(f"ended early: {result.failure}", markup=False)
    console.print(verdict, style="bold", markup=False, soft_wrap=True)

"""The table, for a terminal or a pipe."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerohop.host import decimal_bytes, human_seconds
from zerohop.observe.rates import Row, rows_between
from zerohop.observe.sources import Answer, Source, ask_all, local_sources

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

NOBODY = (
    "no process of this user serves its counters on this host: start it with ZEROHOP_METRICS=local, or name the "
    "address of one that serves them on a port"
)
_TITLES = (
    *("process", "endpoint", "peer", "route", "device", "ops/s", "out/s", "in/s", "notes/s"),
    *("now", "p50", "p99", "errors"),
)
_WORDS = 5  # columns of text, aligned left; the others hold numbers
_WIDEST = 10_000  # characters of a line into a pipe
_LONGEST = 24  # characters shown of a name


class Watch:
    """Samples sources repeatedly; no sources: those found each time."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._before: dict[Source, Answer] = {}

    @property
    def is_answered(self) -> bool:
        """Whether any source answered last time."""
        return bool(self._before)

    def look(self) -> tuple[list[Row], list[str]]:
        """The rows, busiest first, and the troubles by source."""
        answers = ask_all(self._sources or local_sources())
        rows: list[Row] = []
        troubles: list[str] = []
        for answer in answers:
            if answer.trouble:
                troubles.append(_shown(f"{answer.source.name}: {answer.trouble}", 200))
            else:
                rows += rows_between(self._before.get(answer.source), answer)
        self._before = {answer.source: answer for answer in answers if not answer.trouble}
        rows.sort(key=lambda row: (-row.bytes_out - row.bytes_in, -row.operations, _names(row)))
        if not answers:
            troubles.append(NOBODY)
        return rows, troubles


def run(sources: Sequence[Source], interval: float, once: bool) -> bool:
    """Shows the table until interrupted, or once; then returns whether any source answered.

    Into a pipe troubles are printed when they change, and nothing else while no source answers.
    """
    watch = Watch(sources)
    watch.look()
    if not once and sys.stdout.isatty():
        _run_live(watch, interval)
        return True
    shown: list[str] = []
    while True:
        time.sleep(interval)
        rows, troubles = watch.look()
        if watch.is_answered or troubles != shown:
            print(plain(rows), end="\n" if once else "\n\n", flush=True)
        for trouble in troubles if troubles != shown else ():
            print(trouble, file=sys.stderr, flush=True)
        shown = troubles
        if once:
            return watch.is_answered


def _run_live(watch: Watch, interval: float) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(*watch.look()), refresh=True)
            time.sleep(interval)


def _drawn(rows: Sequence[Row], troubles: Sequence[str]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    table = _table(rows)
    table.title, table.expand = "zerohop top", True
    return Group(table, *(Text(trouble, style="yellow") for trouble in troubles))


def plain(rows: Sequence[Row]) -> str:
    """Aligned columns with a line of titles, whatever their width."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=_WIDEST, force_terminal=False, color_system=None)
    with console.capture() as shown:
        console.print(_table(rows))
    return "\n".join(line.rstrip() for line in shown.get().splitlines())


def _table(rows: Sequence[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, title in enumerate(_TITLES):  # in a narrow terminal names are cut
        word = place < _WORDS
        table.add_column(
            title, justify="left" if word else "right", no_wrap=not word, overflow="fold"
        )
    for row in rows:  # Text: names are not markup
        table.add_row(*map(Text, _cells(row)), style="red" if row.failures else "")
    return table


def _cells(row: Row) -> tuple[str, ...]:
    return (
        *(_shown(name, _LONGEST) for name in _names(row)),
        _count(row.operations),
        _nbytes(row.bytes_out),
        _nbytes(row.bytes_in),
        _count(row.notifications),
        str(row.under_way),
        _duration(row.p50),
        _duration(row.p99),
        str(row.failures),
    )


def _names(row: Row) -> tuple[str, ...]:
    peer = row.peer if row.is_there else f"gone:{row.peer}"
    return row.process, row.endpoint, peer, row.route, row.device


def _shown(text: str, most: int) -> str:
    """Makes foreign text harmless: it must not move the cursor, and an empty cell would shift the others."""
    bare = "".join(each if each.isprintable() else "?" for each in text) or "-"
    return bare if len(bare) <= most else bare[: most - 1] + "~"


def _count(value: float) -> str:
    """Powers of 1000: '12.3k', '950'."""
    return decimal_bytes(value).replace(" ", "").removesuffix("B")


def _nbytes(value: float) -> str:
    return decimal_bytes(value).replace(" ", "")


def _duration(seconds: float) -> str:
    return "-" if math.isnan(seconds) else human_seconds(seconds).replace(" ", "")

"""One page of text to be pasted, and one JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from zerohop.verify.adapter.step import FAIL, IMPOSSIBLE, NOT_RUN, PASS, Figures, Outcome, Result

WIDTH = 118
MOST_LINES = 60
MARKS: Mapping[Outcome, str] = {PASS: "pass", FAIL: "FAIL", IMPOSSIBLE: "n/a", NOT_RUN: "-"}
ORDER: tuple[Outcome, ...] = (PASS, FAIL, IMPOSSIBLE, NOT_RUN)


def as_dict(facts: Mapping[str, str], how: str, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "report": "zerohop verify --adapter",
        "good": all(result.outcome != FAIL for result in results),
        "facts": {**facts, "between": how},
        "steps": [asdict(result) for result in results],
    }


def page(facts: Mapping[str, str], how: str, results: Sequence[Result]) -> str:
    """At most MOST_LINES lines of at most WIDTH characters. Failures come first where there is no room for everything."""
    head = _head(facts, how, results)
    failures = [line for result in results if result.outcome == FAIL for line in _failure(result)]
    room = MOST_LINES - len(head) - len(results) - 1
    if len(failures) > room:
        failures = [*failures[: room - 1], "... the JSON has the rest"]
    room -= len(failures)
    steps = []
    for result in results:
        first, *more = _lines(result)
        kept = [] if result.outcome == FAIL else more[:room]
        room -= len(kept)
        steps += [first, *kept]
    marks = f"marks: {MARKS[IMPOSSIBLE]} = not possible here, {MARKS[NOT_RUN]} = not run"
    return "\n".join(line[:WIDTH].rstrip() for line in (*head, *steps, *failures, marks))


def _head(facts: Mapping[str, str], how: str, results: Sequence[Result]) -> list[str]:
    counts = [f"{sum(r.outcome == which for r in results)} {which}" for which in ORDER]
    opened = next((r.figures for r in results if r.name == "open"), {})
    firmware = opened.get("fw_ver", "unknown")
    driver = f"driver {facts['driver']}, firmware {firmware}, kernel {facts['kernel']}"
    versions = f"package zerohop {facts['zerohop']}, Python {facts['python']}, {facts['machine']}, {facts['time']}"
    return [
        f"report of zerohop verify --adapter: {', '.join(counts)}",
        facts["what it is"],
        f"device {facts['device']}: {driver}",
        versions,
        f"between {how}",
    ]


def _lines(result: Result) -> list[str]:
    said = result.cause if result.outcome != PASS else figures_text(result.figures)
    start = f"{MARKS[result.outcome]:4} {result.name:22} {result.seconds:6.2f} s  "
    return textwrap.wrap(start + said, WIDTH, subsequent_indent=" " * len(start)) or [start]


def figures_text(figures: Figures) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def _failure(result: Result) -> list[str]:
    """Cause and remedy in full."""
    remedy = f" Remedy: {result.remedy}" if result.remedy else ""
    text = f"{result.name}: {result.proves} FAILED: {result.cause}.{remedy}"
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")

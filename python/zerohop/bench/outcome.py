"""What a command found, told in every way that was asked for: tables, rows, plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape

from zerohop.bench.plan import Options
from zerohop.bench.plot import draw
from zerohop.bench.report import UNSTEADY_NOTE, Part, print_absences, print_report
from zerohop.bench.rows import Row, header, write_json
from zerohop.host import human_bytes


@dataclass(frozen=True)
class Outcome:
    """Rows measured before a failure are told as well. `facts` go into the header of the rows."""

    suite: str
    left_out: Sequence[int]  # sizes for which memory did not suffice
    rows: Sequence[Row]
    parts: Sequence[Part]
    facts: Mapping[str, Any]
    failure: str | None = None
    absences: Sequence[Mapping[str, str]] = field(default=())


def deliver(outcome: Outcome, options: Options, console: Console) -> bool:
    """Prints the tables, writes the files that are asked for; False when a part of it failed."""
    if outcome.left_out:
        sizes = ", ".join(map(human_bytes, outcome.left_out))
        console.print(f"Left out for want of memory: {sizes}.")
    if outcome.rows:
        for part in outcome.parts:
            if part.label:
                console.rule(part.label)
            print_report(part, console)
    if not all(row.steady for row in outcome.rows):
        console.print(UNSTEADY_NOTE, soft_wrap=True, markup=False, highlight=False)
    for who, settings in outcome.facts.get("settings", {}).items():
        said = f"Set for {who}: {settings}"
        console.print(said, soft_wrap=True, markup=False, highlight=False)
    print_absences(outcome.absences, console)
    if outcome.rows:
        _write(outcome, options, console)
    if outcome.failure is not None:
        reason = escape(outcome.failure)
        console.print("[bold red]zerohop bench failed:[/]", reason, soft_wrap=True)
    return outcome.failure is None


def _write(outcome: Outcome, options: Options, console: Console) -> None:
    if options.json_path is not None:
        facts = dict(outcome.facts)
        if outcome.absences:
            facts["not_available"] = list(outcome.absences)
        write_json(options.json_path, header(outcome.suite, facts), outcome.rows)
        console.print(f"{len(outcome.rows)} rows and their header are in {options.json_path}")
    if options.plot_path is not None:
        shown = draw(options.plot_path, f"zerohop bench {outcome.suite}", outcome.parts)
        said = f"is in {options.plot_path}" if shown else "is left out: no figure has several sizes"
        console.print(f"The plot {said}.")

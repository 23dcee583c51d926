"""The output of `zerohop doctor`: problems first, each with a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.doctor.finding import Finding, State
from zerohop.doctor.routes import Verdict
from zerohop.doctor.trial import Outcome

ORDER: tuple[State, ...] = ("fail", "warn", "ok")
STYLES: dict[State, str] = {"fail": "bold red", "warn": "yellow", "ok": "green", "absent": "dim"}


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    table = _table("", "check", "evidence and remedy")
    present = [finding for finding in findings if finding.state != "absent"]
    for finding in sorted(present, key=lambda finding: ORDER.index(finding.state)):
        text = escape(finding.evidence)
        if finding.fix and finding.state in ("fail", "warn"):
            text += f"\n[bold]→ {escape(finding.fix)}[/]"
        table.add_row(_mark(finding.state), finding.name, text)
    for evidence, names in _absent(findings).items():
        table.add_row(_mark("absent"), "", f"[dim]{escape(evidence)}: {', '.join(names)}[/]")
    console.print(table)


def _absent(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """Names of the checks that had nothing to check, by reason: one line per reason."""
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.state == "absent":
            reasons.setdefault(finding.evidence, []).append(finding.name)
    return reasons


def print_matrix(matrix: Sequence[Sequence[str]], console: Console) -> None:
    """How each GPU (row) reaches the memory of each (column); nothing if there are fewer than two."""
    if len(matrix) < 2:
        return
    names = [f"cuda:{number}" for number in range(len(matrix))]
    table = _table("reaches", *names)
    for name, row in zip(names, matrix, strict=True):
        table.add_row(name, *(f"[red]{cell}[/]" if cell == "no" else cell for cell in row))
    console.print(table)


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    table = _table("route", "here", "why")
    for verdict in verdicts:
        answer = "[green]possible[/]" if verdict.possible else "[red]no[/]"
        table.add_row(verdict.route, answer, escape(verdict.reason))
    console.print(table)


def print_outcomes(outcomes: Sequence[Outcome], console: Console) -> None:
    table = _table("", "route", "transfer")
    alike: dict[tuple[State, str], list[str]] = {}  # routes with the same reason share a row
    for outcome in outcomes:
        alike.setdefault((outcome.state, outcome.evidence), []).append(outcome.route)
    for (state, evidence), routes in alike.items():
        table.add_row(_mark(state), ", ".join(routes), escape(evidence))
    console.print(table)


def _mark(state: State) -> str:
    return f"[{STYLES[state]}]{state}[/]"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table

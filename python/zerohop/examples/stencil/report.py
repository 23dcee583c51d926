"""What rank 0 found, as a table and rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.stencil.rank import Finding, Spec
from zerohop.host import human_seconds

__all__ = ["print_findings", "write_findings"]


def print_findings(spec: Spec, ranks: int, findings: Sequence[Finding], console: Console) -> None:
    title = f"heat equation, {spec.side} x {spec.side} float32, {spec.steps} steps, {ranks} ranks"
    table = Table(title=title, title_justify="left")
    for name in ("by", "on", "a step", "steps/s", "/ host"):
        table.add_column(name, justify="right")
    host = [finding.seconds for finding in findings if finding.way == "host"]
    for finding in findings:
        ratio = f"{host[0] / finding.seconds:.2f}" if host and finding.way == "kernel" else ""
        each = finding.seconds / spec.steps
        table.add_row(finding.way, finding.device, human_seconds(each), f"{1 / each:,.0f}", ratio)
    console.print(table)
    if findings[0].route:
        console.print(f"Halos go {findings[0].route}.", markup=False, soft_wrap=True)
    wrong = [finding for finding in findings if finding.wrong]
    for finding in wrong:
        said = escape(finding.wrong)
        console.print(f"[bold red]WRONG, by {finding.way}:[/] {said}.", soft_wrap=True)
    if not wrong:
        console.print("Every cell is that of the reference, bit for bit.")


def write_findings(path: Path, spec: Spec, findings: Sequence[Finding]) -> None:
    cases = [
        Measured(
            f"{spec.side} x {spec.side}",
            finding.route,
            finding.device,
            4 * spec.side,
            (
                ("steps", spec.steps / finding.seconds, "1/s"),
                ("wrong", float(bool(finding.wrong)), "grids"),
            ),
            by=finding.way,
        )
        for finding in findings
    ]
    write_figures(path, "stencil", cases, steps=spec.steps)

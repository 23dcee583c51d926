"""What the trainer found, as a table and rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.weights.rank import Finding, Spec
from zerohop.host import human_bytes, human_seconds

__all__ = ["print_finding", "write_finding"]


def print_finding(spec: Spec, finding: Finding, console: Console) -> None:
    plan = spec.plan
    title = f"{plan.parameters:,} parameters of {finding.framework} to {finding.readers} readers"
    table = Table(title=title, title_justify="left")
    for name in ("versions", "each", "versions/s", "GB/s", "push p50", "p99"):
        table.add_column(name, justify="right")
    seconds = sum(finding.seconds)
    table.add_row(
        str(plan.versions),
        human_bytes(plan.nbytes),
        f"{plan.versions / seconds:,.0f}",
        f"{rate(spec, finding) / 1e9:.3g}",
        *(human_seconds(float(np.percentile(finding.seconds, part))) for part in (50, 99)),
    )
    console.print(table)
    console.print(f"The parameters go {finding.route}.", markup=False, soft_wrap=True)
    for rank, why in finding.lost.items():
        console.print(f"[bold red]LOST, rank {rank}[/] {escape(why)}.", soft_wrap=True)
    for wrong in finding.wrong:
        console.print(f"[bold red]WRONG,[/] {escape(wrong)}.", soft_wrap=True)
    if not finding.wrong:
        there = finding.readers - len(finding.lost)
        console.print(
            f"Every version at {there} readers is that of the reference, bit for bit.", markup=False
        )


def rate(spec: Spec, finding: Finding) -> float:
    """Bytes per second to the readers that were there to the end, while they were written."""
    there = finding.readers - len(finding.lost)
    return there * spec.plan.nbytes * spec.plan.versions / sum(finding.seconds)


def write_finding(path: Path, spec: Spec, finding: Finding) -> None:
    plan = spec.plan
    figures = (
        ("versions", plan.versions / sum(finding.seconds), "1/s"),
        ("rate", rate(spec, finding), "B/s"),
        ("p50", float(np.percentile(finding.seconds, 50)), "s"),
        ("p99", float(np.percentile(finding.seconds, 99)), "s"),
        ("wrong", float(len(finding.wrong)), "readers"),
        ("lost", float(len(finding.lost)), "readers"),
    )
    test = f"{plan.layers} x {plan.width}"
    case = Measured(test, finding.route, finding.device, plan.nbytes, figures)
    write_figures(path, "weights", [case], readers=finding.readers, framework=finding.framework)

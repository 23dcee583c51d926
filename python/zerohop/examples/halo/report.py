"""What rank 0 found, as a table and rows."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.halo.rank import Finding, Spec
from zerohop.host import human_bytes, human_seconds

__all__ = ["print_finding", "write_finding"]


def print_finding(spec: Spec, finding: Finding, console: Console) -> None:
    plan = spec.plan
    title = f"{plan.rows} x {plan.columns} float32 of {finding.framework}, columns on {plan.ranks} ranks"
    table = Table(title=title, title_justify="left")
    for name in ("steps", "on", "a halo", "a step", "steps/s"):
        table.add_column(name, justify="right")
    each = finding.seconds / plan.steps
    table.add_row(
        str(plan.steps),
        finding.device,
        human_bytes(halo_nbytes(spec)),
        human_seconds(each),
        f"{1 / each:,.0f}",
    )
    console.print(table)
    if finding.route:
        console.print(f"Halos go {finding.route}.", markup=False, soft_wrap=True)
    if finding.wrong:
        console.print(f"[bold red]WRONG,[/] {escape(finding.wrong)}.", soft_wrap=True)
    else:
        console.print("Every cell is that of the reference, bit for bit.")


def halo_nbytes(spec: Spec) -> int:
    return 4 * (spec.plan.rows + 2)


def write_finding(path: Path, spec: Spec, finding: Finding) -> None:
    plan = spec.plan
    figures = (
        ("steps", plan.steps / finding.seconds, "1/s"),
        ("wrong", float(bool(finding.wrong)), "arrays"),
    )
    test = f"{plan.rows} x {plan.columns}"
    case = Measured(test, finding.route, finding.device, halo_nbytes(spec), figures)
    write_figures(path, "halo", [case], ranks=plan.ranks, framework=finding.framework)

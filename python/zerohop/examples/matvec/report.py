"""What the client found, as tables and rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.matvec.rank import Finding
from zerohop.host import human_seconds

__all__ = ["TARGETS", "print_findings", "write_findings"]

TARGETS = {480: 3.0, 15360: 1.0}  # of a batch: by how much the kernel is to be faster


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    table = Table(title="products of 32x32 matrices and vectors", title_justify="left")
    for name in ("batch", "by", "latency p50", "batches/s", "products/s", "/ host", "checked"):
        table.add_column(name, justify="right")
    for finding in findings:
        ratio = _ratio(finding, findings)
        table.add_row(
            str(finding.batch),
            finding.way,
            human_seconds(finding.latency_s),
            f"{finding.batches_per_s:,.0f}",
            f"{finding.batches_per_s * finding.batch:.3g}",
            "" if ratio is None else f"{ratio:.2f}",
            str(finding.checked),
        )
    console.print(table)
    console.print(f"The vectors go {findings[0].route}.", markup=False, soft_wrap=True)
    if any(finding.way == "kernel" for finding in findings):
        console.print(
            "Times of kernels are by the GPU's clock: without the launch, one for each lap."
        )
    _print_targets(findings, console)
    _print_verdict(findings, console)


def _ratio(finding: Finding, findings: Sequence[Finding]) -> float | None:
    """How many times the host's batches/s this kernel has."""
    if finding.way != "kernel":
        return None
    rates = [f.batches_per_s for f in findings if (f.batch, f.way) == (finding.batch, "host")]
    return finding.batches_per_s / rates[0] if rates else None


def _print_targets(findings: Sequence[Finding], console: Console) -> None:
    for finding in findings:
        ratio, target = _ratio(finding, findings), TARGETS.get(finding.batch)
        if ratio is not None and target is not None:
            verdict = "met" if ratio >= target else "missed"
            console.print(
                f"Target at {finding.batch}, kernel/host of {target:g} at least: {verdict}."
            )


def _print_verdict(findings: Sequence[Finding], console: Console) -> None:
    wrong = [(finding, text) for finding in findings for text in finding.wrong[:1]]
    for finding, text in wrong:
        what = f"WRONG, by {finding.way}, {len(finding.wrong)} of {finding.checked} batches; the first is"
        console.print(f"[bold red]{what}[/] {escape(text)}.", soft_wrap=True)
    if not wrong:
        console.print("Every product is that of the reference, bit for bit.")


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    cases = [
        Measured(
            f"batch {finding.batch}",
            finding.route,
            finding.device,
            finding.batch * 128,
            (
                ("p50", finding.latency_s, "s"),
                ("batches", finding.batches_per_s, "1/s"),
                ("products", finding.batches_per_s * finding.batch, "1/s"),
                ("wrong", float(len(finding.wrong)), "batches"),
            ),
            by=finding.way,
        )
        for finding in findings
    ]
    write_figures(path, "matvec", cases)

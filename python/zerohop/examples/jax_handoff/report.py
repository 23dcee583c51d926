"""What rank 0 found, as a table and rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.jax_handoff.rank import Finding, Outcome, Spec
from zerohop.host import human_bytes, human_seconds

__all__ = ["print_finding", "write_finding"]


def print_finding(spec: Spec, finding: Finding, console: Console) -> None:
    title = f"JAX arrays of {spec.rows} x {spec.columns} on {finding.device}"
    table = Table(title=title, title_justify="left")
    for name in ("dtype", "arrays", "each", "write p50", "GB/s", "read in place"):
        table.add_column(name, justify="right")
    for outcome in finding.outcomes:
        seconds = median_s(outcome)
        table.add_row(
            outcome.dtype,
            str(spec.rounds),
            human_bytes(outcome.nbytes),
            human_seconds(seconds),
            f"{outcome.nbytes / seconds / 1e9:.3g}",
            f"{outcome.in_place} of {spec.rounds}",
        )
    console.print(table)
    console.print(f"The arrays go {finding.outcomes[0].route}.", markup=False, soft_wrap=True)
    wrong = [outcome.wrong for outcome in finding.outcomes if outcome.wrong]
    for text in wrong:
        console.print(f"[bold red]WRONG,[/] {escape(text)}.", soft_wrap=True)
    if not wrong:
        console.print("Every element is that of the reference, bit for bit.")


def median_s(outcome: Outcome) -> float:
    return float(np.median(outcome.seconds))


def write_finding(path: Path, spec: Spec, finding: Finding) -> None:
    cases = [
        Measured(
            outcome.dtype,
            outcome.route,
            finding.device,
            outcome.nbytes,
            (
                ("p50", median_s(outcome), "s"),
                ("rate", outcome.nbytes / median_s(outcome), "B/s"),
                ("in place", float(outcome.in_place), "arrays"),
                ("wrong", float(bool(outcome.wrong)), "dtypes"),
            ),
        )
        for outcome in finding.outcomes
    ]
    write_figures(path, "jax_handoff", cases, rounds=spec.rounds)

"""What the decode side found, as a table and rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.kv_cache.plan import LANES
from zerohop.examples.kv_cache.rank import Finding, Spec
from zerohop.host import human_bytes, human_seconds

__all__ = ["print_finding", "write_finding"]


def percentile_s(finding: Finding, percent: int) -> float:
    return float(np.percentile(finding.latencies, percent))


def print_finding(spec: Spec, finding: Finding, console: Console) -> None:
    plan, count = spec.plan, len(finding.latencies)
    title = (
        f"KV cache of {plan.layers} layers x {plan.blocks} blocks of {human_bytes(plan.block_nbytes)}, "
        f"{LANES} requests under way"
    )
    table = Table(title=title, title_justify="left")
    for name in ("requests", "blocks", "requests/s", "GB/s", "latency p50", "p99"):
        table.add_column(name, justify="right")
    table.add_row(
        str(count),
        f"{finding.blocks:,}",
        f"{count / finding.seconds:,.0f}",
        f"{finding.nbytes / finding.seconds / 1e9:.3g}",
        human_seconds(percentile_s(finding, 50)),
        human_seconds(percentile_s(finding, 99)),
    )
    console.print(table)
    console.print(f"The blocks go {finding.route}.", markup=False, soft_wrap=True)
    if finding.wrong:
        what = f"WRONG, {len(finding.wrong)} of {count} requests; the first is"
        console.print(f"[bold red]{what}[/] {escape(finding.wrong[0])}.", soft_wrap=True)
    else:
        console.print("Every block is what prefill computed, bit for bit.")


def write_finding(path: Path, spec: Spec, finding: Finding) -> None:
    plan, count = spec.plan, len(finding.latencies)
    figures = (
        ("requests", count / finding.seconds, "1/s"),
        ("rate", finding.nbytes / finding.seconds, "B/s"),
        ("p50", percentile_s(finding, 50), "s"),
        ("p99", percentile_s(finding, 99), "s"),
        ("wrong", float(len(finding.wrong)), "requests"),
    )
    test = f"{plan.layers} x {plan.blocks}"
    case = Measured(test, finding.route, finding.device, plan.block_nbytes, figures)
    write_figures(path, "kv_cache", [case], requests=count)

"""The output of `zerohop scale`: the resources of a rank, and the limits it meets, for jobs of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from zerohop.host import human_bytes
from zerohop.scale.limits import UNLIMITED, Limit, System, limits
from zerohop.scale.model import Job, Weight, weigh


def _count(value: int | None) -> str:
    return "not measured" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g} s"


_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("Peers", "peers", _count),
    ("queue pairs", "queue_pairs", _count),
    ("... of all ranks on an adapter", "adapter_queue_pairs", _count),
    ("memory regions", "memory_regions", _count),
    ("registered for messages", "registered_nbytes", human_bytes),
    ("pinned, with queues", "pinned_nbytes", human_bytes),
    ("RAM while idle", "idle_nbytes", human_bytes),
    ("RAM after all buffers were used", "resident_nbytes", human_bytes),
    ("descriptors", "descriptors", _count),
    ("mappings", "maps", _count),
    ("completion queue entries", "completions", _count),
    ("heartbeats a second", "heartbeats_per_s", _count),
    ("... a core's time for them", "idle_cpu", "{:.1%}".format),
    ("to connect, one by one", "connect_s", _seconds),
)


def as_dict(jobs: Sequence[Job], system: System) -> list[dict[str, Any]]:
    """For programs: numbers in bytes and seconds."""
    return [
        {
            "job": asdict(job),
            "rank": asdict(weigh(job)),
            "limits": [asdict(each) | {"holds": each.holds} for each in limits(job, system)],
        }
        for job in jobs
    ]


def print_scale(jobs: Sequence[Job], system: System, console: Console) -> None:
    """jobs: equal except for the number of ranks."""
    found = [limits(job, system) for job in jobs]
    tables = [_rank_table(jobs), _limit_table(jobs, found)]
    # Let the terminal wrap a table that is too wide, instead of squeezing it.
    unbounded = console.options.update(width=10_000)
    widest = max(console.measure(table, options=unbounded).maximum for table in tables)
    console.width = max(console.width, widest)
    for table in tables:
        console.print(table)
    for each in zip(*found, strict=True):
        if not all(limit.holds for limit in each):
            console.print(f"{each[0].what}: {each[0].remedy}", soft_wrap=True)
    console.print("\nA model: soft0 was measured, adapters were not. help(zerohop.scale) has more.")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for n, name in enumerate(columns):
        table.add_column(name, justify="left" if n == 0 else "right", no_wrap=True)
    return table


def _rank_table(jobs: Sequence[Job]) -> Table:
    table = _table(f"One rank on {jobs[0].on}", "", *(f"{job.ranks:,} ranks" for job in jobs))
    weights: list[Weight] = [weigh(job) for job in jobs]
    for text, field, shown in _ROWS:
        table.add_row(text, *(shown(getattr(weight, field)) for weight in weights))
    return table


def _limit_table(jobs: Sequence[Job], found: Sequence[Sequence[Limit]]) -> Table:
    """The number of Peers that fit, and so the order, does not depend on the number of ranks."""
    columns = ("limit", "most", "Peers that fit", *(f"{job.ranks:,} ranks" for job in jobs))
    table = _table("Limits of a rank, the lowest first", *columns)
    for each in zip(*found, strict=True):
        words = [_word(limit) for limit in each]
        table.add_row(each[0].what, _most(each[0].most), _most(each[0].peers), *words)
    return table


def _word(limit: Limit) -> str:
    if limit.holds:
        return "[green]ok[/]"
    return "[red]breaks[/]" if limit.breaks else "[yellow]slower[/]"


def _most(number: int) -> str:
    return "unlimited" if number >= UNLIMITED else f"{number:,}"

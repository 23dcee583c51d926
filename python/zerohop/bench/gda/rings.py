"""GPUrdma's table: send queue and completion queue of a kernel's queue pair, each in the memory of a CPU or a GPU.

Daoud, Watad, Silberstein: GPUrdma, ROSS 2016. What cannot be had here is told in words.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from zerohop.bench.gda.plan import VALUE_NBYTES
from zerohop.bench.rows import Figures
from zerohop.host import human_seconds

PLACES = ("CPU", "GPU")
HOST_RINGS = (
    "queue pairs are made by libibverbs, whose providers allocate rings in the memory of the host"
)
REASONS = {
    (
        "GPU",
        "CPU",
    ): f"not to be had: {HOST_RINGS}; and soft0, a thread of the CPU, reads entries by plain "
    "loads, which do not reach a GPU's memory",
    (
        "CPU",
        "GPU",
    ): f"not to be had: {HOST_RINGS}; and soft0, a thread of the CPU, writes completions by "
    "plain stores, which do not reach a GPU's memory",
    (
        "GPU",
        "GPU",
    ): f"not to be had, for both reasons: {HOST_RINGS}; and what soft0 does, it does by plain "
    "loads and stores of the CPU",
}
UNMEASURED = "not measured: there is no figure of the way direct"


def cells(figures: Figures, device: str) -> dict[tuple[str, str], str]:
    """(send queue, completion queue) -> the figure, or why there is none."""
    found = figures.by_size("put_notify_direct", "one_way").get(VALUE_NBYTES)
    took = "" if found is None else f"{human_seconds(found)} one way of 8 B by {device}"
    return {("CPU", "CPU"): took or UNMEASURED, **REASONS}


def print_rings(found: dict[tuple[str, str], str], console: Console) -> None:
    table = Table(title="where a kernel's queue pair lies", title_justify="left", show_lines=True)
    table.add_column("send queue")
    for place in PLACES:
        table.add_column(f"completion queue: {place}", overflow="fold")
    for sends in PLACES:
        table.add_row(sends, *(found[sends, completions] for completions in PLACES))
    console.print(table)

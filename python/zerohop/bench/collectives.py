"""`zerohop bench collectives`: calls of all ranks of a job on this host, over sizes and numbers of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from zerohop.bench.loops import CALLS, arrays_of
from zerohop.bench.plan import GIB, KIB, MIB, Options, Step, make_plan
from zerohop.bench.rows import OURS, Row
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import Part, Table
from zerohop.bench.targets import Of, Target, Verdict, up_from, verdicts
from zerohop.bench.wait import JOBS, WorldJob, theirs
from zerohop.bench.workers import Workers
from zerohop.host import available_memory, human_bytes

SOFT = f"{OURS} soft0"  # without p2p
MEASURED = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
QUICK = ("all_reduce",)
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB)
FULL_SIZES = (8, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
SHARE_OF_FREE = 0.02  # of memory, for the array of one rank
# For the arrays of all ranks of all contenders at one figure: one that has had its turn may keep the memory.
SHARE_OF_ALL = 0.5
LEFT_OUT = "left out for lack of memory"
# "with 2 ranks at least 2 times gloo at every size; at 8 B within 1.5 of Open MPI, from 64 KiB ahead of it"
TWO_RANKS = (
    Target(Of("all_reduce_2", "p50"), 0.5, Of("all_reduce_2", "p50", "gloo")),
    Target(Of("all_reduce_2", "p50"), 1.5, Of("all_reduce_2", "p50", "mpi"), range(8, 9)),
    Target(Of("all_reduce_2", "p50"), 1.0, Of("all_reduce_2", "p50", "mpi"), up_from(64 * KIB)),
)
# "more ranks, and soft0 over TCP, ahead of gloo; soft0 from 1 MiB at least 1.3 times"
OTHERS = (
    *(
        Target(Of(f"all_reduce_{ranks}", "p50"), 1.0, Of(f"all_reduce_{ranks}", "p50", "gloo"))
        for ranks in JOBS[1:]
    ),
    Target(Of("all_reduce_2", "p50", SOFT), 1.0, Of("all_reduce_2", "p50", "gloo")),
    Target(
        Of("all_reduce_2", "p50", SOFT), 1 / 1.3, Of("all_reduce_2", "p50", "gloo"), up_from(MIB)
    ),
)


def make(options: Options) -> Suite:
    """The peers, and ours by p2p and without it, at each size of each call in turn."""
    largest = min(GIB, available_memory() * SHARE_OF_FREE)
    plan = make_plan(options, largest, QUICK_SIZES, FULL_SIZES)
    calls = QUICK if options.quick else MEASURED
    jobs = options.ranks or (JOBS[:2] if options.quick else JOBS)
    entries = list[Entry]()
    for ranks in jobs:
        tests = {f"{call}_{ranks}": call for call in calls}
        ours = Workers(OURS, ranks, WorldJob, options.device)
        soft = Workers(SOFT, ranks, WorldJob, options.device, 0)
        label = f", {ranks} ranks"
        entries.append(Entry(OURS, ours, tests=tests, label=f"{OURS}{label}"))
        entries.append(Entry(SOFT, soft, tests=tests, label=f"{SOFT}{label}", route="host"))
        entries += theirs(options, ranks, tests, label)
    most = available_memory() * SHARE_OF_ALL / (len(entries) / len(jobs))
    steps, absences = list[Step](), Absences()
    for call in calls:
        for ranks in jobs:
            test = f"{call}_{ranks}"
            fits = [n for n in plan.sizes if ranks * sum(arrays_of(call, ranks, n)) <= most]
            steps += [plan.step(test, nbytes) for nbytes in fits]
            if too_large := [human_bytes(n) for n in plan.sizes if n not in fits]:
                absences.note("everybody", test, f"{LEFT_OUT}: {', '.join(too_large)}")
    return Suite("collectives", steps, entries, plan=plan, absences=absences, make_part=report)


def report(rows: Sequence[Row]) -> Part:
    shown = [*rows, *bus_bandwidths(rows)]
    tests = dict.fromkeys(row.test for row in rows)
    tables = [
        Table(f"{_title(test)}, {title}", metric, partial(_line, test), over_size=True)
        for test in tests
        for metric, title in (("p50", "a call"), ("bandwidth", "bus bandwidth, as in nccl-tests"))
    ]
    return Part("", shown, tables, [*_judged(rows)])


def bus_bandwidths(rows: Sequence[Row]) -> list[Row]:
    """Bytes that a rank sends, at least, by the median time (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md)."""
    return [
        replace(row, metric="bandwidth", value=bus_nbytes(row) / row.value, unit="B/s")
        for row in rows
        if row.metric == "p50" and row.value > 0
    ]


def bus_nbytes(row: Row) -> float:
    """nbytes of a row: what each rank gives to all_reduce and broadcast, and to each other rank elsewhere."""
    call, _, number = row.test.rpartition("_")
    ranks = int(number)
    if call == "all_reduce":
        return row.nbytes * 2 * (ranks - 1) / ranks
    return float(row.nbytes if call == "broadcast" else row.nbytes * (ranks - 1))


def _judged(rows: Sequence[Row]) -> Iterator[Verdict]:
    for found in verdicts((*TWO_RANKS, *OTHERS), rows):
        if found.met is not None:
            yield found


def _title(test: str) -> str:
    call, _, ranks = test.rpartition("_")
    assert call in CALLS
    return f"{call}, {ranks} ranks"


def _line(test: str, row: Row) -> str | None:
    return human_bytes(row.nbytes) if row.test == test else None

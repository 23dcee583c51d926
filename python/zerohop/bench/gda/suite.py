"""`zerohop bench gda`: kernels that communicate by zerohop, a bare copy and NVSHMEM, in turn for every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zerohop.bench.gda.nvshmem import SETTINGS, Nvshmem
from zerohop.bench.gda.ours import Ours
from zerohop.bench.gda.plan import (
    HOST_TESTS,
    PLACED,
    POSTERS,
    RING_WAYS,
    SHAPES,
    VALUE_NBYTES,
    WIDE_NBYTES,
    gda_steps,
    wanted_sizes,
)
from zerohop.bench.p2p.suite import two_gpus
from zerohop.bench.plan import KIB, Options, Plan
from zerohop.bench.rows import OURS, Figures, Row
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import listed, over_sizes
from zerohop.bench.targets import Of, Target, only
from zerohop.bench.workers import Workers
from zerohop.host import human_seconds

DRIVER = ("kernel",)  # of rows.DRIVERS
# Our test: the bare copy, or the bare copy, fence and word, by the same processes.
BARE_TESTS = {"put_notify": "bare_put_notify", "put_wide": "bare_wide"}
BOUND_S = 45.0  # for one answer of a contender; the first includes its start and compiler
NO_GPU = "No GPU is visible to the driver, and only kernels are measured here (zerohop doctor shows why there is none)."
ONE_GPU = "There is one GPU: both processes use it, and one way takes as long as their turns."
NVSHMEM_ONE_GPU = "NVSHMEM needs one GPU per process, and there is one GPU here"
THREADS = {shape: f"{blocks} x {threads} threads" for shape, (blocks, threads) in SHAPES.items()}
MESSAGES = {
    **{(f"puts_{shape}", VALUE_NBYTES): f"put, {said}" for shape, said in THREADS.items()},
    **{(f"values_{shape}", VALUE_NBYTES): f"value, {said}" for shape, said in THREADS.items()},
    ("host_puts_python", VALUE_NBYTES): "write by the host, from Python",
    ("host_puts_cpp", VALUE_NBYTES): "write by the host, from C++",
}
ENTRIES = {
    (f"entries_{way}_{threads}", VALUE_NBYTES): f"{way}, threads: {threads}"
    for way in RING_WAYS
    for threads in POSTERS
}
TABLES = (
    over_sizes("put_notify", "put_notify, one way", "one_way"),
    over_sizes("put_notify_both", "put_notify that CPUs see, too", "one_way"),
    *(over_sizes(f"put_notify_{way}", f"put_notify, way {way}", "one_way") for way in RING_WAYS),
    over_sizes("put_wide", "puts by the whole GPU, 132 blocks of 512 threads"),
    listed("8 B messages", "rate", MESSAGES),
    listed("time for a kernel to post an entry", "posted", ENTRIES),
    listed("time until an entry is done, one of many", "done", ENTRIES),
)


PUT_NOTIFY = Of("put_notify", "one_way")
ONE, MANY = ({way: Of(f"entries_{way}_{n}", "posted") for way in RING_WAYS} for n in (1, 32))
TARGETS = (
    Target(PUT_NOTIFY, 1.6e-6, sizes=only(8)),
    Target(PUT_NOTIFY, 3.5e-6, sizes=only(64 * KIB)),
    Target(Of("put_wide"), 0.95, Of("put_wide", impl="bare")),
    Target(Of("puts_132x512", "rate"), 10.0, Of("host_puts_cpp", "rate")),
    Target(PUT_NOTIFY, 1.0, PUT_NOTIFY._replace(impl="nvshmem")),
    *(
        Target(Of(f"{test}_{shape}", "rate"), 1.0, Of(f"{test}_{shape}", "rate", "nvshmem"))
        for test in ("puts", "values")
        for shape in SHAPES
    ),
    *(Target(ONE[way], 1e-6) for way in RING_WAYS),
    *(Target(MANY[way], 0.125, ONE[way]) for way in RING_WAYS),
)


def make(options: Options) -> Suite:
    gpus, _, facts = two_gpus(NO_GPU)
    one_gpu = gpus[0] == gpus[1]
    absences = Absences()
    if one_gpu:
        absences.note("everybody", "on two GPUs", ONE_GPU)
    steps = gda_steps(options, one_gpu)
    return Suite(
        "gda",
        steps,
        entries(options, gpus, [step.test for step in steps], absences),
        TABLES,
        {"": TARGETS},
        plan=Plan(left_out=tuple(n for n in wanted_sizes(options) if n > WIDE_NBYTES)),
        facts=facts,
        absences=absences,
        warm=True,
        rings=rings if options.rings else None,
    )


def entries(
    options: Options, gpus: tuple[int, int], tests: Sequence[str], absences: Absences
) -> list[Entry]:
    """Our route is the way of the kernel's queue; for writes of the host it is p2p."""
    memory = f"cuda:{gpus[0]} -> cuda:{gpus[1]}"
    ours = Workers(OURS, 2, Ours, options.device, gpus, bound=BOUND_S)
    ways: dict[str, dict[str, str]] = {"mapped": {}, **{way: {} for way in RING_WAYS}}
    for test in tests:
        if test not in HOST_TESTS.values():
            ways[next((way for way in RING_WAYS if way in test), "mapped")][test] = test
    found = [Entry(OURS, ours, DRIVER, memory, way, own, needed=True) for way, own in ways.items()]
    found.append(Entry("bare", ours, DRIVER, memory, "bare", BARE_TESTS))
    for driver, test in HOST_TESTS.items():
        found.append(Entry(OURS, ours, (driver,), memory, "p2p", {test: test}))
    if "nvshmem" in options.peers and gpus[0] == gpus[1]:
        absences.note("nvshmem", "", NVSHMEM_ONE_GPU)
    elif "nvshmem" in options.peers:
        peer = Workers("nvshmem", 2, Nvshmem, gpus, bound=BOUND_S)
        found.append(Entry("nvshmem", peer, DRIVER, memory, settings=SETTINGS))
    return found


def rings(rows: Sequence[Row], facts: Mapping[str, Any]) -> dict[str, str]:
    """GPUrdma's table: send queue and completion queue of a kernel's queue pair, each in the memory of a CPU or a GPU.

    Daoud, Watad, Silberstein: GPUrdma, ROSS 2016.
    """
    found, device = Figures(rows), facts.get("device", "no device")
    return {
        f"{sends.upper()} / {completions.upper()}": _figure(found, test, device)
        for test, (sends, completions) in PLACED.items()
    }


def _figure(found: Figures, test: str, device: str) -> str:
    taken = found.by_size(test, "one_way").get(VALUE_NBYTES)
    if taken is None:
        return "no figure: such a queue could not be opened, which the notes explain"
    return f"{human_seconds(taken)} one way of 8 B by {device}"

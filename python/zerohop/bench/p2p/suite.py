"""Arrays on the GPUs of two processes of one host: ours, bare copies, PyTorch and NCCL, in turn."""

from __future__ import annotations

from typing import Any

from zerohop import _core
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.ours import Ours
from zerohop.bench.p2p.peers import NCCL_SETTINGS, TORCH_SETTINGS, Nccl, Raw, Torch
from zerohop.bench.p2p.plan import (
    BLOCK_TESTS,
    BLOCKS_NBYTES,
    arena_nbytes,
    gpu_plan,
    steps,
)
from zerohop.bench.plan import KIB, MIB, Options, PeerFailed
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import over_sizes
from zerohop.bench.targets import Of, Target, only, up_from
from zerohop.bench.workers import Workers
from zerohop.local import Link, Ranks

BOUND_S = 90.0  # for one answer of a contender; the first includes its start
PEERS: dict[str, tuple[Any, int, str]] = {  # the player, the number of processes, the settings
    "raw": (Raw, 1, ""),
    "torch": (Torch, 2, TORCH_SETTINGS),
    "nccl": (Nccl, 2, NCCL_SETTINGS),
}
TABLES = (
    over_sizes("write_latency", "blocking write", "p50"),
    over_sizes("stream_notify", "write + notify, stream to stream, one way", "one_way"),
    over_sizes("write", "write bandwidth"),
    over_sizes("read", "read bandwidth"),
    over_sizes("both", "both directions at once, sum"),
    *(over_sizes(test, f"{test}, scattered blocks") for test in BLOCK_TESTS),
    over_sizes("halo", "halo columns of 64 B (raw: row by row)"),
    over_sizes("post_write", "host time to post a write", "per_call"),
    over_sizes("stream_notify", "host time to post a write + notify", "per_call"),
)
LARGE = up_from(256 * MIB)
WRITE, NOTIFY = Of("write"), Of("stream_notify", "one_way")
TARGETS = (
    Target(WRITE, 0.99, Of("write", impl="raw"), LARGE),
    Target(WRITE, 1.05, Of("write", impl="nccl"), LARGE),
    Target(NOTIFY, 4.5e-6, sizes=range(8, 4 * KIB + 1)),
    Target(NOTIFY, 6e-6, sizes=only(64 * KIB)),
    Target(NOTIFY, 9e-6, sizes=only(MIB)),
    Target(Of("post_write", "per_call"), 4e-6, sizes=only(8)),
    Target(Of("stream_notify", "per_call"), 4e-6, sizes=only(8)),
    Target(Of("write_many_4k"), 280e9, sizes=only(BLOCKS_NBYTES)),
    Target(Of("write_many_16k"), 320e9, sizes=only(BLOCKS_NBYTES)),
    Target(Of("write_many_64k"), 340e9, sizes=only(BLOCKS_NBYTES)),
    Target(Of("halo"), 10.0, Of("halo", impl="raw")),
    Target(Of("read"), 0.95, WRITE, LARGE),
    Target(Of("both"), 1.9, WRITE, LARGE),
)
NO_GPU = (
    "No GPU is visible to the driver, so there is nothing to measure between GPUs (zerohop doctor shows why).  "
    "zerohop bench host measures between host arrays of two processes, also by p2p."
)


def make(options: Options) -> Suite:
    gpus, free, facts = two_gpus(NO_GPU)
    plan = gpu_plan(options, free, len(set(gpus)))
    absences = Absences()
    return Suite(
        "p2p",
        steps(plan),
        entries(options, gpus, arena_nbytes(plan), absences),
        TABLES,
        {"": TARGETS},
        plan=plan,
        facts=facts,
        absences=absences,
    )


def entries(
    options: Options, gpus: tuple[int, int], nbytes: int, absences: Absences
) -> list[Entry]:
    """`absences` gets those that need two GPUs."""
    memory = f"cuda:{gpus[0]} -> cuda:{gpus[1]}"
    ours = Workers(OURS, 2, Ours, options.device, gpus, nbytes, bound=BOUND_S)
    found = [Entry(OURS, ours, memory=memory, needed=True, must_go="p2p")]
    for name, (player, size, settings) in PEERS.items():
        if name not in options.peers:
            continue
        if name == "nccl" and gpus[0] == gpus[1]:
            absences.note(name, "", "NCCL needs one process per GPU, and there is one GPU here")
            continue
        peer = Workers(name, size, player, gpus, nbytes, bound=BOUND_S)
        found.append(Entry(name, peer, memory=memory, settings=settings))
    return found


def two_gpus(without: str) -> tuple[tuple[int, int], int, dict[str, Any]]:
    """(both ordinals, bytes free on the fuller one, facts). Raises PeerFailed(`without`) if there is no GPU."""
    count = _core.gpu_count()
    if count == 0:
        raise PeerFailed(without)
    gpus = (0, min(1, count - 1))
    with Ranks(look, 1, gpus, silence=BOUND_S) as ranks:
        free, facts = ranks.results()[0]
    return gpus, free, facts


def look(link: Link, gpus: tuple[int, int]) -> tuple[int, dict[str, Any]]:
    """(bytes free on the fuller GPU, facts), found by a process that exits and so destroys its contexts."""
    driver = Driver()
    found = [driver.gpu(ordinal) for ordinal in gpus]
    facts = {"gpus": [gpu.name() for gpu in found], "cuda_driver": driver.version()}
    return min(gpu.free_nbytes() for gpu in found), facts

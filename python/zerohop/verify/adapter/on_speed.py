"""Steps that measure latency and bandwidth of bare queue pairs between both ends, and by perftest where that is installed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zerohop import _core, verbs
from zerohop.bench.peers.perftest import PACKAGE, SOFT, Perftest
from zerohop.bench.placement import FREE
from zerohop.bench.plan import PeerFailed, window
from zerohop.bench.programs import require_program
from zerohop.verify.adapter.end import End
from zerohop.verify.adapter.setup import Setup
from zerohop.verify.adapter.step import Failed, Figures, Impossible, NotRun, Steps

STEPS = Steps()
SMALL_NBYTES, LARGE_NBYTES = 8, 1 << 20
FEW, BATCH, MOST = 20, 200, 20_000  # requests: of the first batch, of another at most, and of all
BOUND_S = 15.0  # of each batch, which is short: the machine may become busy meanwhile
SECONDS, QUICK_SECONDS = 0.5, 0.1  # of each figure, about
RUNS = {"ib_write_lat": "latency", "ib_write_bw": "bandwidth", "ib_read_bw": "bandwidth"}


@STEPS.add(
    "latency", "Time of the smallest requests, by bare queue pairs.", ("write and read",), 60.0
)
def latency(setup: Setup) -> Figures:
    near, seconds = setup.connect(), _seconds(setup)
    place = setup.far.memory()
    figures = {}
    operations: dict[str, dict[str, Any]] = {"write": {}, "read": {}}
    if setup.device.attributes["atomic_cap"] != "NONE":
        operations["fetch_add"] = {"add": 1}
    for operation, operands in operations.items():
        request = verbs.SendRequest(operation, near.region[:8], remote=place, **operands)
        figures[f"{operation}_8_B_us"] = _us(_latencies(near, request, seconds))
    figures["write_8_B_half_trip_us"] = _us(_half_trips(setup, near, place, seconds))
    return figures


@STEPS.add(
    "bandwidth", "Rate of 1 MiB writes and reads, by a bare queue pair.", ("write and read",), 60.0
)
def bandwidth(setup: Setup) -> Figures:
    near, seconds = setup.connect(), _seconds(setup)
    figures = {}
    for operation in ("write", "read"):
        part = near.region[:LARGE_NBYTES]
        request = verbs.SendRequest(operation, part, remote=setup.far.memory())

        def run(times: int, request: verbs.SendRequest = request) -> list[float]:
            took = _core.bench_verbs_stream(
                near.pairs, near.queue, request, times, window(LARGE_NBYTES), BOUND_S
            )
            return [took / times] * times

        each = float(np.mean(_batches(run, seconds)))
        figures[f"{operation}_1_MiB_GBps"] = round(LARGE_NBYTES / each / 1e9, 3)
    return figures


@STEPS.add(
    "perftest",
    "The same by perftest of linux-rdma, two of its processes on this device.",
    ("write and read",),
    90.0,
)
def perftest(setup: Setup) -> Figures:
    device = setup.device
    if device.name.startswith(SOFT):
        raise Impossible(f"its programs run on libibverbs devices, and {device.name} is not one")
    try:
        for program in RUNS:
            require_program(program, PACKAGE)
    except PeerFailed as missing:
        cause, _, remedy = str(missing).partition(": ")
        raise NotRun(cause, remedy) from None
    runs, seconds = Perftest(device), _seconds(setup)
    figures: dict[str, Any] = {}
    try:
        for program, kind in RUNS.items():
            if kind == "latency":
                taken = runs.latency(program, SMALL_NBYTES, seconds, FREE)["p50"] * 1e6
                known = round(taken, 2) if math.isfinite(taken) else "unknown to perftest"
                figures[f"{program}_8_B_half_trip_us"] = known
            else:
                rate = runs.bandwidth(program, 1, LARGE_NBYTES, seconds, FREE)["bandwidth"]
                figures[f"{program}_1_MiB_GBps"] = round(rate / 1e9, 3)
    except PeerFailed as failed:
        raise Failed(str(failed), "run that program by hand") from None
    return figures


def _seconds(setup: Setup) -> float:
    return QUICK_SECONDS if setup.spec.quick else SECONDS


def _latencies(near: End, request: verbs.SendRequest, seconds: float) -> list[float]:
    def run(times: int) -> list[float]:
        return list(_core.bench_verbs_latency(near.pairs[0], near.queue, request, times, BOUND_S))

    return _batches(run, seconds)


def _half_trips(setup: Setup, near: End, place: tuple[int, int], seconds: float) -> list[float]:
    """Of writes that both ends poll for."""
    here = near.memory()

    def run(times: int) -> list[float]:
        setup.far.start("ping_pong", here, SMALL_NBYTES, times, False, BOUND_S)
        taken = near.ping_pong(place, SMALL_NBYTES, times, True, BOUND_S)
        setup.far.finish(seconds=BOUND_S)
        return list(taken)

    return _batches(run, seconds)


def _batches(run: Callable[[int], list[float]], seconds: float) -> list[float]:
    """What runs of about so many seconds return, without the first, which warms up, if there are others."""
    first = latest = run(FEW)
    taken, until = list[float](), time.monotonic() + seconds
    while len(taken) < MOST:
        times = min(BATCH, int((until - time.monotonic()) / np.mean(latest)))
        if times < 1:
            break
        latest = run(times)
        taken += latest
    return taken or first


def _us(taken: list[float]) -> float:
    return round(float(np.median(taken)) * 1e6, 2)

"""Steps of the package's own engine between both ends: what programs will use."""

from __future__ import annotations

import time

import numpy as np

from zerohop.verify.adapter.end import compare, pattern
from zerohop.verify.adapter.engine_end import NBYTES, TIMEOUT_S, Notifier
from zerohop.verify.adapter.on_queues import check, expect
from zerohop.verify.adapter.setup import Setup
from zerohop.verify.adapter.step import Figures, Steps

STEPS = Steps()
OFFSET, TRANSFER_NBYTES = 4093, 3_000_001
SLOT, VALUE = 7, 0xABCDEF
ROUNDS, QUICK_ROUNDS = 1_000_000, 20_000
SECONDS, QUICK_SECONDS = 90.0, 5.0  # at most, for as many rounds as fit


@STEPS.add(
    "endpoints",
    "Two Endpoints connect on the device; a write with a notification and a read bring every byte, by the route `host`.",
    needs=("port", "gid", "register"),
)
def endpoints(setup: Setup) -> Figures:
    begin = time.perf_counter()
    peer = setup.peer
    took = time.perf_counter() - begin
    memory, array = setup.engine.memory, setup.engine.array
    array[:TRANSFER_NBYTES] = pattern(200, TRANSFER_NBYTES)
    there = setup.remote[OFFSET : OFFSET + TRANSFER_NBYTES]
    sent = peer.write(memory[:TRANSFER_NBYTES], there, notify=(SLOT, VALUE), require="host")
    sent.wait()
    expect("notification", setup.far.engine_take_notification(SLOT, seconds=TIMEOUT_S), VALUE)
    check(setup.far.engine_differs(200, TRANSFER_NBYTES, OFFSET))
    array.fill(0)
    peer.read(there, memory[:TRANSFER_NBYTES], require="host").wait()
    wanted = np.zeros(NBYTES, np.uint8)
    wanted[:TRANSFER_NBYTES] = pattern(200, TRANSFER_NBYTES)
    check(compare(array, wanted))
    return {"route": str(sent.route), "connected_ms": round(took * 1e3, 1)}


@STEPS.add(
    "notifications",
    "No notification is seen by the CPU before the data that it follows, a million times.",
    needs=("endpoints",),
    seconds=2 * SECONDS,
)
def notifications(setup: Setup) -> Figures:
    rounds, bound = (QUICK_ROUNDS, QUICK_SECONDS) if setup.spec.quick else (ROUNDS, SECONDS)
    notifier = Notifier(setup.engine, setup.peer, setup.remote)
    setup.far.start("engine_hear", rounds, bound + TIMEOUT_S)
    begin = time.perf_counter()
    sent = notifier.notify(rounds, bound)
    heard = setup.far.finish(seconds=TIMEOUT_S)
    took = time.perf_counter() - begin
    expect("notifications heard", heard, sent)
    figures: dict[str, object] = {"notifications": sent, "each_us": round(took / sent * 1e6, 2)}
    if sent < rounds:
        figures["note"] = f"of {rounds}, as many as {bound:g} s allowed"
    return figures

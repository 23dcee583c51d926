"""Steps with a GPU beside the device: registrations, GPUDirect, and kernels that see writes and drive queues.

All of them loop back on this host: what they prove is between this host's GPU and this host's device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from zerohop._core import DeviceQueue, Memory
from zerohop.errors import RegistrationError, RouteUnavailable
from zerohop.verify.adapter.end import pattern
from zerohop.verify.adapter.gpu import NAME, NBYTES, WAYS, GpuPair, find_gpu
from zerohop.verify.adapter.setup import Setup
from zerohop.verify.adapter.step import Failed, Figures, Impossible, Steps

STEPS = Steps()
BESIDE = ("gpu", "endpoints")
OFFSET, MOVED_NBYTES = 4093, 3_000_001
WORD_AT = NBYTES - 4096  # of the word a kernel spins on, in memory whose begin has the data
BLOCK_NBYTES = 4096
SLOT = 3
ROUNDS, QUICK_ROUNDS = 1_000_000, 10_000
SECONDS, QUICK_SECONDS = 120.0, 5.0  # at most, for as many rounds as fit
FIRST_BATCH, LAUNCH_S = 64, 5.0  # rounds of the first launch; about how long the others take
PIECE_NBYTES = 64 << 10
WAIT_S = 5.0
RINGS, PLACES = ("send_queue", "completion_queue"), ("host", "gpu")  # keywords of device_queue()
DATA = "report this: data was seen after what follows it"


@STEPS.add("gpu", "There is a GPU, and its driver answers.")
def gpu(setup: Setup) -> Figures:
    del setup
    found = find_gpu()
    version = found.driver.version()
    return {"gpu": found.name(), "cuda": f"{version // 1000}.{version % 1000 // 10}", "used": NAME}


def _register(setup: Setup, way: str) -> Figures:
    begin = time.perf_counter()
    memory = setup.gpu.memory(way)
    took = time.perf_counter() - begin
    return {"bytes": NBYTES, "registration": memory.registration, "ms": round(took * 1e3, 2)}


@STEPS.add(
    "gpu memory by dma-buf",
    "The device registers GPU memory that the driver exports as a dma-buf.",
    BESIDE,
)
def dmabuf(setup: Setup) -> Figures:
    return _register(setup, "dmabuf")


@STEPS.add(
    "gpu memory by peermem", "The device registers GPU memory through nvidia-peermem.", BESIDE
)
def peermem(setup: Setup) -> Figures:
    return _register(setup, "peermem")


def _each_way(pair: GpuPair) -> Iterator[Memory]:
    reasons = []
    for way in WAYS:
        try:
            yield pair.memory(way)
        except Impossible as why:
            reasons.append(f"{way}: {why.cause}")
    if len(reasons) == len(WAYS):
        raise Impossible("; ".join(reasons), "either way is enough: dma-buf, or nvidia-peermem")


@STEPS.add(
    "gpudirect write",
    "The device writes into GPU memory, as the driver shows by its own copy: every byte, and those beside.",
    BESIDE,
)
def gpudirect_write(setup: Setup) -> Figures:
    pair = setup.gpu
    tried = []
    for number, memory in enumerate(_each_way(pair)):
        pair.store(memory, np.zeros(NBYTES, np.uint8))
        np.asarray(pair.staging)[:MOVED_NBYTES] = pattern(300 + number, MOVED_NBYTES)
        there = memory[OFFSET : OFFSET + MOVED_NBYTES]
        pair.peer.write(pair.staging[:MOVED_NBYTES], there.remote, require="gpudirect").wait()
        pair.check(memory, 300 + number, MOVED_NBYTES, OFFSET)
        tried.append(memory.registration)
    return {"by": " ".join(tried), "bytes": MOVED_NBYTES}


@STEPS.add(
    "gpudirect read", "The device reads GPU memory, which the driver filled: every byte.", BESIDE
)
def gpudirect_read(setup: Setup) -> Figures:
    pair = setup.gpu
    tried = []
    for number, memory in enumerate(_each_way(pair)):
        content = np.zeros(NBYTES, np.uint8)
        content[OFFSET : OFFSET + MOVED_NBYTES] = pattern(310 + number, MOVED_NBYTES)
        pair.store(memory, content)
        back = np.asarray(pair.staging)
        back.fill(0)
        there = memory[OFFSET : OFFSET + MOVED_NBYTES]
        target = pair.staging[OFFSET : OFFSET + MOVED_NBYTES]
        pair.peer.read(there.remote, target, require="gpudirect").wait()
        pair.check(pair.staging, 310 + number, MOVED_NBYTES, OFFSET)
        tried.append(memory.registration)
    return {"by": " ".join(tried), "bytes": MOVED_NBYTES}


def _await_word(word: Any, value: int) -> bool:
    """Whether a kernel has written the value there in WAIT_S."""
    until = time.monotonic() + WAIT_S
    while word[0] != value:
        if time.monotonic() > until:
            return False
    return True


@STEPS.add(
    "spinning kernel",
    "A kernel that spins on a word sees the device's write of it, and then the data before it.",
    BESIDE,
    60.0,
)
def spinning_kernel(setup: Setup) -> Figures:
    pair, value = setup.gpu, 0x5EED
    memory = pair.any_memory()
    pair.store(memory, np.zeros(NBYTES, np.uint8))
    staging = np.asarray(pair.staging).view(np.uint32)
    staging.fill(value)
    near, started = pair.staging, pair.pinned()

    def write() -> None:
        if not _await_word(started, 1):  # so that the kernel spins
            return
        pair.peer.write(near[:BLOCK_NBYTES], memory[:BLOCK_NBYTES].remote).wait()
        pair.peer.write(near[:4], memory[WORD_AT : WORD_AT + 4].remote).wait()

    data = np.uint64(memory.address)
    arguments = (
        np.uint64(memory.address + WORD_AT),
        data,
        np.uint64(BLOCK_NBYTES),
        np.uint32(value),
        np.uint64(started.ctypes.data),
    )
    took, wrong = pair.run("spin", *arguments, meanwhile=write)
    if wrong:
        raise Failed(
            f"{wrong} words of the data were old when the kernel saw the word behind them", DATA
        )
    return {"seen_after_us": round(took * 1e6, 1), "bytes": BLOCK_NBYTES}


@STEPS.add(
    "gpu notifications",
    "No notification is seen by a kernel before the data that it follows, a million times.",
    BESIDE,
    240.0,
)
def gpu_notifications(setup: Setup) -> Figures:
    pair = setup.gpu
    rounds, bound = (QUICK_ROUNDS, QUICK_SECONDS) if setup.spec.quick else (ROUNDS, SECONDS)
    memory = pair.any_memory()
    pair.store(memory, np.zeros(NBYTES, np.uint8))
    source, near = np.asarray(pair.staging).view(np.uint32), pair.staging[:BLOCK_NBYTES]
    there = memory[:BLOCK_NBYTES].remote
    heard = pair.pinned()

    def notify(first: int, last: int) -> None:
        for number in range(first, last + 1):
            source[: BLOCK_NBYTES // 4] = number
            pair.peer.write(near, there, notify=(SLOT, number)).wait()
            if not _await_word(heard, number):
                return  # the kernel says why

    done, took, batch = 0, 0.0, FIRST_BATCH
    data = np.uint64(memory.address), np.uint64(BLOCK_NBYTES)
    with pair.board(SLOT) as board:
        while done < rounds and took < bound:
            first, last = done + 1, min(rounds, done + batch)
            arguments = (board.value, np.uint32(SLOT), *data, np.uint32(first), np.uint32(last))
            where = np.uint64(heard.ctypes.data)
            each, wrong = pair.run(
                "hear", *arguments, where, meanwhile=partial(notify, first, last)
            )
            if wrong:
                raise Failed(
                    f"in round {wrong} of {rounds} a kernel saw the notification first", DATA
                )
            done, took = last, took + each
            batch = max(1, int(LAUNCH_S * done / took))
    figures: dict[str, object] = {
        "notifications": done,
        "each_us": round(took / done * 1e6, 2),
        "bytes": BLOCK_NBYTES,
    }
    if done < rounds:
        figures["note"] = f"of {rounds}, as many as {bound:g} s allowed"
    return figures


@contextmanager
def _queue(pair: GpuPair, **places: Any) -> Iterator[tuple[Memory, DeviceQueue]]:
    """A queue that kernels drive, from GPU memory of the near end to host memory of the far one. places: of its rings."""
    try:
        source = pair.new_source()
        queue = pair.peer.device_queue(source, pair.host.remote, way="direct", **places)
    except (RouteUnavailable, RegistrationError) as error:
        raise Impossible(str(error), "the message names what is missing") from None
    with queue as opened:
        yield source, opened


def _drive(pair: GpuPair, source: Memory, queue: DeviceQueue, seed: int) -> float:
    """Seconds. Fails unless every byte and the notification arrive."""
    np.asarray(pair.host).fill(0)
    pair.store(source, pattern(seed, NBYTES))
    sizes = np.uint64(NBYTES), np.uint64(PIECE_NBYTES)
    took, _ = pair.run("drive", queue.value, *sizes, np.uint32(SLOT + 1), np.uint32(seed))
    value = pair.far.wait_notify(SLOT + 1, WAIT_S)
    if value != seed:
        raise Failed(f"the kernel's notification had the value {value} instead of {seed}")
    pair.check(pair.host, seed, NBYTES, 0)
    return took


@STEPS.add(
    "uar",
    "The device's doorbell register (UAR) and a queue's rings are mapped into the GPU.",
    BESIDE,
)
def uar(setup: Setup) -> Figures:
    with _queue(setup.gpu) as (_, queue):
        return {"way": queue.way, "route": str(queue.route)}


@STEPS.add(
    "kernel queue",
    "A kernel writes the entries of a queue pair and rings its doorbell: every byte arrives.",
    ("uar",),
    60.0,
)
def kernel_queue(setup: Setup) -> Figures:
    with _queue(setup.gpu) as (source, queue):
        took = _drive(setup.gpu, source, queue, 400)
    return {"bytes": NBYTES, "GBps": round(NBYTES / took / 1e9, 3) if took else 0.0}


@STEPS.add("second queue", "Two such queues work side by side.", ("kernel queue",), 60.0)
def second_queue(setup: Setup) -> Figures:
    pair = setup.gpu
    with _queue(pair) as first, _queue(pair) as second:
        for number, (source, queue) in enumerate((first, second, first)):
            _drive(pair, source, queue, 410 + number)
    return {"queues": 2, "turns": 3}


@STEPS.add(
    "closed and reopened",
    "A queue that was closed is opened again, three times.",
    ("kernel queue",),
    60.0,
)
def reopened(setup: Setup) -> Figures:
    for number in range(3):
        with _queue(setup.gpu) as (source, queue):
            _drive(setup.gpu, source, queue, 420 + number)
    return {"times": 3}


@STEPS.add(
    "placements",
    "Which of the rings of a kernel's queue pair can lie in the memory of the CPU (host) or the GPU.",
    ("uar",),
    120.0,
)
def placements(setup: Setup) -> Figures:
    """By send queue / completion queue: what was driven, or why it cannot be had."""
    cells = {}
    for number, places in enumerate(product(PLACES, PLACES)):
        try:
            with _queue(setup.gpu, **dict(zip(RINGS, places, strict=True))) as (source, queue):
                _drive(setup.gpu, source, queue, 430 + number)
            said = "works"
        except Impossible as why:
            said = f"not to be had: {why.cause}"
        cells[" / ".join(places)] = said
    if "works" not in cells.values():
        raise Impossible("; ".join(f"{cell}: {said}" for cell, said in cells.items()))
    return cells

"""`zerohop bench registration`: the cost of registering memory, by size, the first time and again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import zerohop as zh
from zerohop import _core, verbs
from zerohop.bench.loops import batches
from zerohop.bench.p2p.peers import torch_with_gpus
from zerohop.bench.plan import KIB, MIB, Found, Options, Plan, Step, make_plan
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import over_sizes
from zerohop.bench.targets import Of, Target
from zerohop.bench.workers import Player, Workers
from zerohop.host import available_memory
from zerohop.local import Link

QUICK_SIZES = (4 * KIB, MIB, 64 * MIB)
SHARE_OF_FREE = 0.1  # of free memory, for one array
TRIES = 20  # at most, per turn; a turn lasts at most:
TRIES_S = 0.2
HOST, CACHED, UNCACHED = "host", "cuda:0, cached", "cuda:0, no cache"
LABELS = {
    HOST: "host memory",
    CACHED: "GPU memory, with the registration cache",
    UNCACHED: "GPU memory, without it",
}
NO_GPU = "no GPU is visible to the driver: only host memory is registered"
TABLES = (
    over_sizes("fresh", "register new memory", "register"),
    over_sizes("fresh", "close it", "close"),
    over_sizes("again", "register registered memory", "register"),
)
# "registering an already registered tensor at most 2 us"
TARGETS = (Target(Of("again", "register"), 2e-6),)


def make(options: Options) -> Suite:
    plan = make_plan(options, available_memory() * SHARE_OF_FREE, QUICK_SIZES)
    absences = Absences()
    entries = [_ours(HOST, options, None, {})]
    if _core.gpu_count() > 0:
        entries.append(_ours(CACHED, options, 0, {}))
        entries.append(_ours(UNCACHED, options, 0, {"registration_cache": 0}))
    else:
        absences.note(OURS, "GPU memory", NO_GPU)
    if "raw" in options.peers:
        entries.append(Entry("raw", Workers("raw", 1, Raw, options.device), route="ibv_reg_mr"))
    return Suite(
        "registration",
        steps(plan),
        entries,
        TABLES,
        {HOST: TARGETS},
        LABELS,
        plan=plan,
        absences=absences,
    )


def steps(plan: Plan) -> list[Step]:
    return [plan.step(test, nbytes) for nbytes in plan.sizes for test in ("fresh", "again")]


def _ours(memory: str, options: Options, gpu: int | None, knobs: dict[str, int]) -> Entry:
    contender = Workers(OURS, 1, Registrar, options.device, gpu, knobs)
    label = f"{OURS}, {LABELS[memory]}"
    return Entry(OURS, contender, memory=memory, needed=memory == HOST, label=label)


class Registrar(Player):
    """A single Endpoint. gpu: the ordinal of the GPU whose memory is registered; None: host memory."""

    def __init__(
        self, link: Link, device: str | None, gpu: int | None, knobs: dict[str, Any]
    ) -> None:
        self._endpoint = zh.Endpoint(device, **knobs)
        self._new: Callable[[int], Any] = _pages if gpu is None else _gpu_arrays(gpu)
        self._on_host = gpu is None

    def facts(self) -> dict[str, str]:
        return {"device": self._endpoint.device, "route": "host" if self._on_host else "gpu"}

    def close(self) -> None:
        self._endpoint.close()

    def fresh(self, nbytes: int, times: int) -> Found:
        return costs(lambda: self._new(nbytes), self._endpoint.register)

    def again(self, nbytes: int, times: int) -> Found:
        array, register = self._new(nbytes), self._endpoint.register
        with register(array):
            return {"register": statistics.median(batches(lambda: register(array), 200, 10, len))}


class Raw(Player):
    """The same memory with a bare ibv_reg_mr on the same device."""

    def __init__(self, link: Link, device: str | None) -> None:
        with zh.Endpoint(device) as endpoint:  # chooses the device if none is named
            name = endpoint.device.split(",")[0]
        self._domain = verbs.Device(name).pd()

    def fresh(self, nbytes: int, times: int) -> Found:
        return costs(lambda: _pages(nbytes), self._domain.register)

    def again(self, nbytes: int, times: int) -> Found:
        """ibv_reg_mr has no cache: it pins the pages again."""
        array = _pages(nbytes)
        region = self._domain.register(array)
        found = costs(lambda: array, self._domain.register)
        region.close()
        return found


def costs(make: Callable[[], Any], register: Callable[[Any], Any]) -> Found:
    """Medians of registering the result of `make`, and of closing it."""
    registering, closing = [], []
    until = time.perf_counter() + TRIES_S
    for _ in range(TRIES):
        array = make()
        begin = time.perf_counter()
        memory = register(array)
        registered = time.perf_counter()
        memory.close()
        closing.append(time.perf_counter() - registered)
        registering.append(registered - begin)
        if time.perf_counter() > until:
            break
    return {"register": statistics.median(registering), "close": statistics.median(closing)}


def _pages(nbytes: int) -> np.ndarray[Any, Any]:
    return np.ones(nbytes, np.uint8)  # every page is touched: allocation is not measured


def _gpu_arrays(gpu: int) -> Callable[[int], Any]:
    """PyTorch tensors: its allocator returns the same memory again, which is in the cache."""
    torch = torch_with_gpus()
    return lambda nbytes: torch.ones(nbytes, dtype=torch.uint8, device=f"cuda:{gpu}")

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
from zerohop.bench.plan import KIB, MIB, Found, Options, Order, Plan, Step, make_plan
from zerohop.bench.rows import OURS
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import listed, over_sizes
from zerohop.bench.targets import Of, Target
from zerohop.bench.workers import Player, Workers, require_module
from zerohop.host import available_memory, has_torch
from zerohop.local import Link

QUICK_SIZES = (4 * KIB, MIB, 64 * MIB)
SHARE_OF_FREE = 0.1  # of free memory, for one array
VIEWS = 10_000  # of one tensor, each registered
ROW_NBYTES = 64
TRIES = 20  # at most, per turn; a turn lasts at most:
TRIES_S = 0.2
HOST, CACHED, UNCACHED = "host", "cuda:0, cached", "cuda:0, no cache"
LABELS = {
    HOST: "host memory",
    CACHED: "GPU memory, with the registration cache",
    UNCACHED: "GPU memory, without it",
}
NO_GPU = "no GPU is visible to the driver: only host memory is registered"
SIZED = ("fresh", "again")
VIEW_TESTS = {
    ("view_numpy", ROW_NBYTES): "any view, numpy",
    ("view_torch", ROW_NBYTES): "any view, torch",
}
VIEWS_TESTS = {("views_numpy", ROW_NBYTES): "numpy", ("views_torch", ROW_NBYTES): "torch"}
TABLES = (
    over_sizes("fresh", "register new memory", "register"),
    over_sizes("fresh", "close it", "close"),
    over_sizes("again", "register registered memory", "register"),
    listed("arrays that are already registered", "register", VIEW_TESTS),
    listed(f"{VIEWS} views of one array, all of them", "register", VIEWS_TESTS),
)
# "registering an already registered tensor, or any view of it, at most 2 us"; "10 000 views in under 50 ms"
BOUNDS = {
    "again": 2e-6,
    **{test: 2e-6 for test, _ in VIEW_TESTS},
    **{test: 50e-3 for test, _ in VIEWS_TESTS},
}
TARGETS = tuple(Target(Of(test, "register"), bound) for test, bound in BOUNDS.items())


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
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED]
    return found + [plan.step(*of_views) for of_views in (*VIEW_TESTS, *VIEWS_TESTS)]


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

    def perform(self, order: Order) -> Found:
        register = self._endpoint.register
        if order.test == "fresh":
            return costs(lambda: self._new(order.nbytes), register)
        if order.test == "again":
            array = self._new(order.nbytes)
            with register(array):
                return {"register": per_call(lambda: register(array))}
        kind, _, framework = order.test.partition("_")
        if not self._on_host or (framework == "torch" and not has_torch()):
            return {}
        table = _table(framework)
        views = [table[i] for i in range(VIEWS)]  # made before the clock runs
        with register(table):
            if kind == "view":
                return {"register": per_call(lambda: register(views[VIEWS // 2]))}
            begin = time.perf_counter()
            memories = [register(view) for view in views]
            took = time.perf_counter() - begin
            del memories
        return {"register": took}


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


def per_call(call: Callable[[], object]) -> float:
    """Seconds: the median over ten batches."""
    return statistics.median(batches(call, 200, 10, len))


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


def _table(framework: str) -> Any:
    if framework == "numpy":
        return np.zeros((VIEWS, ROW_NBYTES), np.uint8)
    torch = require_module("torch", "")
    return torch.zeros((VIEWS, ROW_NBYTES), dtype=torch.uint8)


def _gpu_arrays(gpu: int) -> Callable[[int], Any]:
    """PyTorch tensors: its allocator returns the same memory again, which is in the cache."""
    torch = torch_with_gpus()
    return lambda nbytes: torch.ones(nbytes, dtype=torch.uint8, device=f"cuda:{gpu}")

"""`zerohop bench registration`: what it costs to register memory, by size, the first time and again."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console

import zerohop as zh
from zerohop import _core, verbs
from zerohop.bench.frame import Bench, Entrant, run_bench
from zerohop.bench.overhead import per_call
from zerohop.bench.p2p.torch_ipc import torch_with_gpus
from zerohop.bench.plan import KIB, MIB, VIEWS, Options, Order, Plan, Step, plan_of
from zerohop.bench.report import Part, Sheet, View
from zerohop.bench.rows import Figures, Row
from zerohop.bench.targets import Verdict
from zerohop.bench.turns import OURS, Absences, Contestant, Found
from zerohop.host import available_memory, has_torch, human_seconds
from zerohop.local import Link

SUITE = "registration"
BOUND_S = 120.0
QUICK_SIZES = (4 * KIB, MIB, 64 * MIB)
SHARE_OF_FREE = 0.1  # of memory, for one array
REGISTER_S = 2e-6  # "registering an already registered tensor, or any view of it, at most 2 us"
VIEWS_S = 50e-3  # "10 000 views of one tensor register in under 50 ms"
ROW_NBYTES = 64
TRIES = 20  # of one turn, for as long as that lasts at most:
TRIES_S = 0.2
HOST, CACHED, UNCACHED = "host", "cuda:0, cached", "cuda:0, no cache"
LABELS = {
    HOST: "memory of the host",
    CACHED: "memory of a GPU, with the cache of registrations",
    UNCACHED: "memory of a GPU, without it",
}
NO_GPU = "no GPU is visible to the driver: memory of the host alone is registered"
SIZED = ("fresh", "again")
VIEWS_TESTS = {"numpy": "views_numpy", "torch": "views_torch"}
VIEW_TESTS = {"numpy": "view_numpy", "torch": "view_torch"}
TABLES = (
    View("fresh", "register what is not registered", "register"),
    View("fresh", "let go of it: close", "close"),
    View("again", "register what is registered", "register"),
)
SHEETS = (
    Sheet(
        "arrays that are registered already",
        "register",
        tuple((f"any view, {name}", test, ROW_NBYTES) for name, test in VIEW_TESTS.items()),
    ),
    Sheet(
        f"{VIEWS} views of one array, all of them",
        "register",
        tuple((f"{name}", test, ROW_NBYTES) for name, test in VIEWS_TESTS.items()),
    ),
)


def run(options: Options, console: Console) -> bool:
    return run_bench(make, options, console)


def make(options: Options) -> Bench:
    plan = plan_of(options, int(available_memory() * SHARE_OF_FREE), QUICK_SIZES)
    absences = Absences()
    drivers = ("python",)
    found = [_entrant(HOST, options, None, {})]
    if _core.gpu_count() > 0:
        found.append(_entrant(CACHED, options, 0, {}))
        found.append(_entrant(UNCACHED, options, 0, {"registration_cache": 0}))
    else:
        absences.note(OURS, "memory of a GPU", NO_GPU)
    if "raw" in options.peers:
        raw = Contestant("raw", 1, BOUND_S, Raw, options.device, placement=options.placement)
        found.append(Entrant("raw", raw, drivers, HOST, "ibv_reg_mr"))
    return Bench(SUITE, steps(plan), found, told, 0.0, plan.left_out, absences=absences)


def _entrant(memory: str, options: Options, gpu: int | None, knobs: dict[str, int]) -> Entrant:
    arguments = options.device, gpu, knobs
    player = Contestant(OURS, 1, BOUND_S, Registrar, *arguments, placement=options.placement)
    label = f"{OURS}, {LABELS[memory]}"
    return Entrant(OURS, player, ("python",), memory, needed=memory == HOST, label=label)


def steps(plan: Plan) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED]
    of_views = (*VIEW_TESTS.values(), *VIEWS_TESTS.values())
    return found + [plan.step(test, ROW_NBYTES) for test in of_views]


def told(rows: Sequence[Row]) -> Sequence[Part]:
    parts = []
    for memory, label in LABELS.items():
        figures = Figures(row for row in rows if row.memory == memory)
        if figures.tests():
            judged = verdicts(figures) if memory == HOST else []
            parts.append(Part(label, figures, TABLES, judged, SHEETS))
    return parts


def verdicts(figures: Figures) -> list[Verdict]:
    found = []
    bounds = {
        "again": REGISTER_S,
        **dict.fromkeys(VIEW_TESTS.values(), REGISTER_S),
        **dict.fromkeys(VIEWS_TESTS.values(), VIEWS_S),
    }
    for test, bound in bounds.items():
        values = figures.by_size(test, "register", driver="python").values()
        if values:
            slowest = max(values)
            target = f"register, {test} <= {human_seconds(bound)}"
            found.append(Verdict(target, human_seconds(slowest), slowest <= bound))
    return found


class Registrar:
    """One Endpoint, alone. gpu: the ordinal of the GPU whose memory it is; None: the host's."""

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
        if order.test == "fresh":
            return costs(lambda: self._new(order.nbytes), self._endpoint.register)
        if order.test == "again":
            array = self._new(order.nbytes)
            with self._endpoint.register(array):
                return {"register": per_call(lambda: self._endpoint.register(array))}
        if not self._on_host:
            return {}
        kind, _, name = order.test.partition("_")
        table = _table(name)
        return {} if table is None else self._views(table, all_of_them=kind == "views")

    def _views(self, table: Any, all_of_them: bool) -> Found:
        """The views exist before the clock runs."""
        register = self._endpoint.register
        views = [table[i] for i in range(VIEWS)]
        with register(table):
            if not all_of_them:
                return {"register": per_call(lambda: register(views[VIEWS // 2]))}
            begin = time.perf_counter()
            memories = [register(view) for view in views]
            took = time.perf_counter() - begin
            del memories
        return {"register": took}


class Raw:
    """The same memory by a bare ibv_reg_mr of the same device."""

    def __init__(self, link: Link, device: str | None) -> None:
        with zh.Endpoint(device) as endpoint:  # chooses, if nothing is named
            name = endpoint.device.split(",")[0]
        self._domain = verbs.Device(name).pd()

    def facts(self) -> dict[str, str]:
        return {}

    def close(self) -> None: ...

    def fresh(self, nbytes: int, times: int) -> Found:
        return costs(lambda: _pages(nbytes), self._domain.register)

    def again(self, nbytes: int, times: int) -> Found:
        """ibv_reg_mr knows no again: it pins the pages once more."""
        array = _pages(nbytes)
        region = self._domain.register(array)
        found = costs(lambda: array, self._domain.register)
        region.close()
        return found


def costs(make: Callable[[], Any], register: Callable[[Any], Any]) -> Found:
    """Medians of registering what `make` gives, and of closing that."""
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
    array = np.empty(nbytes, np.uint8)
    array.fill(1)  # every page is there: to make it is not what is measured
    return array


def _table(name: str) -> Any:
    if name == "numpy":
        return np.zeros((VIEWS, ROW_NBYTES), np.uint8)
    if not has_torch():
        return None
    torch: Any = importlib.import_module("torch")
    return torch.zeros((VIEWS, ROW_NBYTES), dtype=torch.uint8)


def _gpu_arrays(gpu: int) -> Callable[[int], Any]:
    """PyTorch's, whose allocator gives the same memory again, which the cache knows."""
    torch = torch_with_gpus()
    return lambda nbytes: torch.ones(nbytes, dtype=torch.uint8, device=f"cuda:{gpu}")

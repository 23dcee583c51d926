"""What one call costs: posting a write, and registering what is registered already."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from zerohop import _core
from zerohop.bench.plan import VIEWS
from zerohop.host import has_torch

if TYPE_CHECKING:
    from zerohop.bench.loops import Side

POSTS = 32  # writes posted under one clock reading: fewer than the send queue takes
BATCHES = 200
REGISTERS = 2000
ROW_NBYTES = 64

Costs = list[tuple[str, str, str, float]]  # test, driver, metric, seconds


def call_costs(side: Side) -> Costs:
    """Medians over batches; the views of the last figure exist before the clock runs."""
    costs = [
        ("post_write", "python", "per_call", python_post(side)),
        ("post_write", "cpp", "per_call", _cpp_post(side)),
    ]
    tensors: dict[str, Any] = {"numpy": np.zeros((VIEWS, ROW_NBYTES), np.uint8)}
    if has_torch():
        torch: Any = importlib.import_module("torch")
        tensors["torch"] = torch.zeros((VIEWS, ROW_NBYTES), dtype=torch.uint8)
    for name, tensor in tensors.items():
        costs += _register_costs(side, name, tensor)
    return costs


def python_post(side: Side) -> float:
    source, target, write = side.arena[:8], side.remote[:8], side.peer.write
    seconds = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        transfers = [write(source, target) for _ in range(POSTS)]
        seconds.append((time.perf_counter() - begin) / POSTS)
        for transfer in transfers:
            transfer.wait()
    return statistics.median(seconds)


def _cpp_post(side: Side) -> float:
    seconds = _core.bench_post(side.peer, side.arena[:8], side.remote[:8], POSTS, BATCHES, 60.0)
    return statistics.median(seconds)


def _register_costs(side: Side, name: str, tensor: Any) -> Costs:
    register = side.endpoint.register
    with register(tensor):
        views = [tensor[i] for i in range(VIEWS)]
        again = _per_call(lambda: register(tensor))
        view = _per_call(lambda: register(views[VIEWS // 2]))
        begin = time.perf_counter()
        memories = [register(view) for view in views]
        all_views = time.perf_counter() - begin
        del memories
    return [
        (f"register_again_{name}", "python", "per_call", again),
        (f"register_view_{name}", "python", "per_call", view),
        (f"register_views_{name}", "python", f"all_{VIEWS}", all_views),
    ]


def warm_register_cost(side: Side) -> float:
    """Seconds to register an array that is registered already."""
    array = np.zeros(ROW_NBYTES, np.uint8)
    with side.endpoint.register(array):
        return _per_call(lambda: side.endpoint.register(array))


def _per_call(call: Callable[[], object]) -> float:
    """Median over ten batches, each kept alive to its end: closing is not what is measured."""
    seconds = []
    for _ in range(10):
        begin = time.perf_counter()
        kept = [call() for _ in range(REGISTERS // 10)]
        seconds.append((time.perf_counter() - begin) / len(kept))
        del kept
    return statistics.median(seconds)

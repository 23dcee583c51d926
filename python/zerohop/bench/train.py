"""`zerohop bench train`: steps of DDP and of FSDP2 on a transformer, with different backends of torch.distributed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zerohop import _core
from zerohop.bench.p2p.peers import NCCL_SETTINGS
from zerohop.bench.peers.torch import INSTALL, LOOPBACK, SETTINGS, begin_group
from zerohop.bench.plan import Options, Order, Plan, Step
from zerohop.bench.rows import OURS, Row
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import Part, listed
from zerohop.bench.targets import Of, Target, verdicts
from zerohop.bench.workers import Player, Workers, require_module
from zerohop.local import Link

BOUND_S = (
    300.0  # of the group's waits, and of an answer; the first includes the compilation of kernels
)
WRAPPINGS = {"ddp": "DistributedDataParallel", "fsdp2": "fully_shard"}
WARM_UP = 2  # steps
ONE_THREAD = ("OMP_NUM_THREADS", "1")  # as torchrun sets it for several ranks
SECONDS, QUICK_SECONDS = 3.0, 1.0  # of each turn


@dataclass(frozen=True)
class Model:
    """A transformer: layers of attention and of a fourfold wider network between two embeddings, and its batches."""

    width: int
    layers: int
    words: int
    batch: int
    length: int
    dtype: str
    parameters: str  # how many, in words

    @property
    def nbytes(self) -> int:
        """Of the parameters: those of the layers and of the embeddings of input and output."""
        count = 12 * self.width**2 * self.layers + 2 * self.words * self.width
        return count * (2 if self.dtype == "bfloat16" else 4)


ON_CPUS = Model(512, 8, 1000, 4, 64, "float32", "26 million")
ON_GPUS = Model(1024, 24, 24_000, 16, 1024, "bfloat16", "351 million")
# "a step no slower than gloo's; over NCCL's within 5 %"
TARGETS = tuple(
    Target(Of(test, "p50"), bound, Of(test, "p50", peer))
    for test in WRAPPINGS
    for peer, bound in (("gloo", 1.0), ("nccl", 1.05))
)


def make(options: Options) -> Suite:
    """A process for each GPU if there are several, else two processes on the CPU."""
    gpus = _core.gpu_count()
    on_gpus = gpus > 1
    ranks, model = (gpus, ON_GPUS) if on_gpus else (2, ON_CPUS)
    absences, entries = Absences(), list[Entry]()
    for name in (OURS, *options.peers):
        if name == "nccl" and not on_gpus:
            absences.note(name, "", "NCCL needs a GPU for each rank")
            continue
        workers = Workers(name, ranks, Training, name, model, on_gpus, bound=BOUND_S)
        memory = "GPUs" if on_gpus else "host"
        settings = {"nccl": NCCL_SETTINGS, "gloo": SETTINGS}.get(name, "")
        entry = Entry(name, workers, memory=memory, settings=settings, needed=name == OURS)
        entries.append(entry)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    return Suite(
        "train",
        [Step(test, model.nbytes) for test in WRAPPINGS],
        entries,
        plan=Plan(seconds=seconds),
        absences=absences,
        make_part=lambda rows: report(rows, model, ranks),
    )


def report(rows: Sequence[Row], model: Model, ranks: int) -> Part:
    title = f"a step, {model.parameters} parameters of {model.dtype}, {ranks} ranks"
    lines = {(test, model.nbytes): what for test, what in WRAPPINGS.items()}
    judged = [verdict for verdict in verdicts(TARGETS, rows) if verdict.met is not None]
    return Part("", rows, [listed(title, "p50", lines)], judged)


class Training(Player):
    """A rank that trains with the backend of that name. All have the same model and each its own batch."""

    def __init__(self, link: Link, backend: str, model: Model, on_gpus: bool) -> None:
        os.environ.setdefault(*LOOPBACK)
        os.environ.setdefault(*ONE_THREAD)
        self._torch = require_module("torch", INSTALL)
        self._dist = require_module("torch.distributed", INSTALL)
        if backend == OURS:
            require_module("zerohop.torch", INSTALL)
        self._link, self._model = link, model
        self._device = f"cuda:{link.rank}" if on_gpus else "cpu"
        if on_gpus:
            self._torch.cuda.set_device(self._device)
        begin_group(self._dist, backend, link, BOUND_S)
        self._steps: dict[str, Callable[[], float]] = {}

    def facts(self) -> dict[str, Any]:
        return {"torch": self._torch.__version__, "device": self._device, "route": "torch"}

    def close(self) -> None:
        self._steps.clear()
        self._dist.destroy_process_group()

    def perform(self, order: Order) -> Any:
        """Rank 0 returns the seconds of each step."""
        if order.test not in self._steps:
            self._steps = {order.test: self._prepared(order.test)}
            for _ in range(WARM_UP):
                self._steps[order.test]()
        step = self._steps[order.test]
        self._link.exchange(None)
        return [step() for _ in range(order.times)]

    def _prepared(self, wrapping: str) -> Callable[[], float]:
        torch, model = self._torch, self._model
        torch.manual_seed(1)
        made = transformer(torch, model).to(self._device, getattr(torch, model.dtype))
        if wrapping == "ddp":
            wrapped: Any = torch.nn.parallel.DistributedDataParallel(made)
        else:
            shard = require_module("torch.distributed.fsdp", INSTALL).fully_shard
            for layer in made[1].layers:
                shard(layer)
            wrapped = shard(made)
        optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4)
        torch.manual_seed(2 + self._link.rank)
        shape = (model.batch, model.length)
        given, wanted = (torch.randint(model.words, shape, device=self._device) for _ in range(2))
        loss_of = torch.nn.CrossEntropyLoss()

        def step() -> float:
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = loss_of(wrapped(given).flatten(0, 1).float(), wanted.flatten())
            loss.backward()
            optimizer.step()
            loss.item()  # waits for the GPU
            return time.perf_counter() - begin

        return step


def transformer(torch: Any, model: Model) -> Any:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(
        model.width, model.width // 64, 4 * model.width, dropout=0.0, batch_first=True
    )
    return nn.Sequential(
        nn.Embedding(model.words, model.width),
        nn.TransformerEncoder(layer, model.layers, enable_nested_tensor=False),
        nn.Linear(model.width, model.words),
    )

"""`zerohop bench gpu-collectives`: calls in CUDA graphs between the GPUs of this host, as PyTorch programs make them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import zerohop as zh
from zerohop import _core
from zerohop._world.mpi import GatheredStore
from zerohop.bench.collectives import bus_bandwidths
from zerohop.bench.p2p.peers import NCCL_BOUND_S, NCCL_SETTINGS, TORCH_SETTINGS
from zerohop.bench.p2p.suite import BOUND_S, look
from zerohop.bench.peers.torch import INSTALL, begin_group
from zerohop.bench.plan import KIB, MIB, Options, Order, PeerFailed, make_plan
from zerohop.bench.rows import OURS, Row
from zerohop.bench.runner import Absences, Entry, Suite
from zerohop.bench.tables import Part, over_sizes
from zerohop.bench.targets import Of, Target, only, up_from, verdicts
from zerohop.bench.workers import Player, Workers, require_module
from zerohop.local import Link, Ranks

CALLS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
QUICK_SIZES = (8, 32 * KIB, 256 * KIB, MIB, 16 * MIB, 256 * MIB)
FULL_SIZES = (8, KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
MOST_RANKS = 8
SEGMENT = f"{OURS} in a segment"  # with arrays there
SHARE_OF_FREE = 0.5  # of a GPU's memory, for the arrays of one contender at one figure
# Calls of one graph: enough that its launch does not count.
CALLS_IN_GRAPH = 20
LARGE_CALLS_IN_GRAPH = 4
TURNS = 9  # replays that are timed, one by one
POSTED = 50  # calls outside of a graph whose time on the CPU is taken
Enqueue = Callable[[], object]
# What two GPUs are to reach, and what NCCL reaches there; on one GPU the time of the kernel.
SMALL = range(8, 32 * KIB + 1)
ALL_REDUCE = Of("all_reduce_2", "p50")
ONE_GPU = (Target(ALL_REDUCE, 5e-6, sizes=SMALL), Target(ALL_REDUCE, 8e-6, sizes=only(256 * KIB)))
TWO_GPUS = (
    Target(ALL_REDUCE, 6e-6, sizes=SMALL),
    Target(ALL_REDUCE, 9e-6, sizes=only(256 * KIB)),
    Target(ALL_REDUCE, 20e-6, sizes=only(MIB)),
    *(
        Target(Of(f"{call}_2"), 0.95, Of(f"{call}_2", impl="nccl"), up_from(256 * MIB))
        for call in CALLS
    ),
)
NO_GPU = (
    "No GPU is visible to the driver, so there is nothing to measure between GPUs (zerohop doctor shows why).  "
    "zerohop bench collectives measures the calls of host arrays."
)


def make(options: Options) -> Suite:
    """A rank and a process for each GPU; on a single GPU two ranks that are threads of one process."""
    gpus = min(_core.gpu_count(), MOST_RANKS)
    if gpus == 0:
        raise PeerFailed(NO_GPU)
    processes = ((0, 0),) if gpus == 1 else tuple((gpu,) for gpu in range(gpus))
    ranks = sum(map(len, processes))
    with Ranks(look, 1, tuple(range(gpus)), silence=BOUND_S) as looking:
        free, facts = looking.results()[0]
    on_each = max(map(len, processes)) * 2 * (ranks + 1)  # arrays of so many blocks
    plan = make_plan(options, free * SHARE_OF_FREE / on_each, QUICK_SIZES, FULL_SIZES)
    absences = Absences()
    entries = [
        _entry(OURS, World, processes, options.device),
        _entry(SEGMENT, InSegment, processes, options.device),
    ]
    if "nccl" in options.peers:
        if gpus == 1:
            absences.note("nccl", "", "NCCL needs a GPU for each rank, and there is one GPU here")
        else:
            entries.append(_entry("nccl", Nccl, processes, settings=NCCL_SETTINGS))
    if "symm_mem" in options.peers:
        if gpus == 1:
            absences.note("symm_mem", "", "it needs a GPU for each rank, and there is one GPU here")
        else:
            entries.append(_entry("symm_mem", SymmetricMemory, processes, settings=TORCH_SETTINGS))
    return Suite(
        "gpu-collectives",
        [plan.step(f"{call}_{ranks}", nbytes) for call in CALLS for nbytes in plan.sizes],
        entries,
        plan=plan,
        facts=facts,
        absences=absences,
        make_part=lambda rows: report(rows, ONE_GPU if gpus == 1 else TWO_GPUS),
    )


def _entry(
    name: str, player: Any, processes: Sequence[Sequence[int]], *more: Any, settings: str = ""
) -> Entry:
    workers = Workers(name, len(processes), player, processes, *more, bound=BOUND_S)
    gpus = sorted({gpu for ranks in processes for gpu in ranks})
    memory = ", ".join(f"cuda:{gpu}" for gpu in gpus)
    return Entry(name, workers, memory=memory, route="p2p", settings=settings, needed=name == OURS)


def report(rows: Sequence[Row], targets: Sequence[Target]) -> Part:
    shown = [*rows, *bus_bandwidths(rows)]
    tables = []
    for test in dict.fromkeys(row.test for row in rows):
        call, _, ranks = test.rpartition("_")
        title = f"{call}, {ranks} ranks"
        tables += [
            over_sizes(test, f"{title}, a call in a CUDA graph", "p50"),
            over_sizes(test, f"{title}, bus bandwidth, as in nccl-tests"),
            over_sizes(test, f"{title}, time on the CPU to enqueue a call", "per_call"),
        ]
    judged = [verdict for verdict in verdicts(targets, shown) if verdict.met is not None]
    return Part("", shown, tables, judged)


class Replays(Player):
    """The ranks of one process, which capture calls into CUDA graphs and replay them.

    processes: for each process, the GPU of each of its ranks.
    """

    def __init__(self, link: Link, processes: Sequence[Sequence[int]]) -> None:
        self.torch = require_module("torch", INSTALL)
        self.link, self.gpus = link, processes[link.rank]
        self.size = sum(map(len, processes))
        before = sum(map(len, processes[: link.rank]))
        self.ranks = range(before, before + len(self.gpus))
        self.torch.cuda.set_device(self.gpus[0])
        self.streams = [self.torch.cuda.Stream(gpu) for gpu in self.gpus]

    def enqueue(self, index: int, test: str, nbytes: int) -> Enqueue:
        """A call of the index-th rank here, in the current stream. Raises PeerFailed if there is none."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        return {"torch": self.torch.__version__}

    def perform(self, order: Order) -> Any:
        """Process 0: the median of a call in a graph ("p50"), and of the time to enqueue one ("per_call")."""
        call, nbytes = order.test.rpartition("_")[0], order.nbytes
        calls = [self.enqueue(index, call, nbytes) for index in range(len(self.gpus))]
        per_call = self._posted(calls)
        several = CALLS_IN_GRAPH if nbytes <= MIB else LARGE_CALLS_IN_GRAPH
        graphs = [self._capture(stream, each, several) for stream, each in self._each(calls)]
        samples = [self._replayed(graphs) / several for _ in range(TURNS)]
        del graphs, calls
        self.synchronize()
        self.link.exchange(None)
        return {"p50": statistics.median(samples), "per_call": per_call}

    def synchronize(self) -> None:
        for gpu in self.gpus:
            self.torch.cuda.synchronize(gpu)

    def zeros(self, index: int, *shape: int) -> Any:
        """Of float32, on that rank's GPU."""
        return self.torch.zeros(shape, dtype=self.torch.float32, device=self.gpus[index])

    def _each(self, items: Sequence[Any]) -> list[tuple[Any, Any]]:
        return list(zip(self.streams, items, strict=True))

    def _posted(self, calls: Sequence[Enqueue]) -> float:
        """The first calls, in turn: a rank's kernel waits for the others'."""
        self.synchronize()
        self.link.exchange(None)
        seconds = []
        for _ in range(POSTED):
            begin = time.perf_counter()
            for stream, call in self._each(calls):
                with self.torch.cuda.stream(stream):
                    call()
            seconds.append((time.perf_counter() - begin) / len(calls))
            self.synchronize()
        return statistics.median(seconds)

    def _capture(self, stream: Any, call: Enqueue, several: int) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=stream):
            for _ in range(several):
                call()
        return graph

    def _replayed(self, graphs: Sequence[Any]) -> float:
        """Seconds of one replay, behind another one in which the ranks have met."""
        self.link.exchange(None)
        events = []
        for stream, graph in self._each(graphs):
            with self.torch.cuda.stream(stream):
                begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                graph.replay()
                begin.record()
                graph.replay()
                end.record()
                events.append((begin, end))
        self.synchronize()
        return float(max(begin.elapsed_time(end) for begin, end in events)) / 1e3


class World(Replays):
    """Ours: a World for each rank, whose kernels carry out the calls."""

    def __init__(
        self, link: Link, processes: Sequence[Sequence[int]], device: str | None = None
    ) -> None:
        super().__init__(link, processes)
        stores = [GatheredStore() for _ in self.ranks]
        options: dict[str, Any] = {"device": device, "gpu_collectives": "kernels"}
        self._worlds = [
            zh.World(store, rank, self.size, **options)
            for store, rank in zip(stores, self.ranks, strict=True)
        ]
        for others in link.exchange([store.known for store in stores]):
            for known in others:
                for store in stores:
                    store.known.update(known)
        with ThreadPoolExecutor(len(self.ranks)) as threads:
            list(threads.map(self._meet, range(len(self.ranks))))

    def _meet(self, index: int) -> None:
        """The first call goes by messages; then the kernels are ready."""
        self.torch.cuda.set_device(self.gpus[index])
        self._worlds[index].all_reduce(self.zeros(index, 1))

    def facts(self) -> dict[str, Any]:
        world = self._worlds[0]
        reason = f"{self.size} ranks, {world.gpu_collectives}"
        return {
            **super().facts(),
            "device": world.endpoint.device,
            "route": "p2p",
            "reason": reason,
        }

    def close(self) -> None:
        for world in self._worlds:
            world.close()

    def enqueue(self, index: int, test: str, nbytes: int) -> Enqueue:
        world, count, current = self._worlds[index], nbytes // 4, self.torch.cuda.current_stream
        one, other = self.zeros(index, count), self.zeros(index, count)
        if test == "all_reduce":
            return lambda: world.all_reduce(one, out=other, stream=current())
        if test == "broadcast":
            return lambda: world.broadcast(one, 0, stream=current())
        several = self.zeros(index, self.size, count)
        if test == "all_gather":
            return lambda: world.all_gather(several, one, stream=current())
        if test == "reduce_scatter":
            return lambda: world.reduce_scatter(one, several, stream=current())
        into = self.zeros(index, self.size, count)
        return lambda: world.all_to_all(into, several, stream=current())


class InSegment(World):
    """The same with arrays in a segment, which the kernels of all ranks reach."""

    _free: Sequence[Any] = ()  # what is left of each rank's, while a figure is taken

    def perform(self, order: Order) -> Any:
        places = list(zip(self._worlds, self.gpus, strict=True))
        nbytes = 2 * (self.size + 1) * order.nbytes
        made = [world.segment(nbytes, device=f"cuda:{gpu}", queues=1) for world, gpu in places]
        self._free = [self.torch.from_dlpack(segment.local) for segment in made]
        try:
            self.link.exchange(None)  # all have made theirs
            return super().perform(order)
        finally:
            self._free = ()
            for segment in made:
                segment.close()

    def zeros(self, index: int, *shape: int) -> Any:
        if not self._free:
            return super().zeros(index, *shape)
        nbytes, free = 4 * math.prod(shape), list(self._free)
        taken, free[index] = free[index][:nbytes], free[index][nbytes:]
        self._free = free
        return taken.view(self.torch.float32).view(shape)


class Nccl(Replays):
    def __init__(self, link: Link, processes: Sequence[Sequence[int]]) -> None:
        super().__init__(link, processes)
        self._dist = require_module("torch.distributed", INSTALL)
        begin_group(self._dist, "nccl", link, NCCL_BOUND_S)

    def facts(self) -> dict[str, Any]:
        version = ".".join(map(str, self.torch.cuda.nccl.version()))
        return {**super().facts(), "nccl": version}

    def close(self) -> None:
        self._dist.destroy_process_group()

    def enqueue(self, index: int, test: str, nbytes: int) -> Enqueue:
        dist, count = self._dist, nbytes // 4
        one = self.zeros(index, count)
        if test == "all_reduce":  # in place: out of place is not slower
            return lambda: dist.all_reduce(one)
        if test == "broadcast":
            return lambda: dist.broadcast(one, 0)
        several = self.zeros(index, self.size * count)
        if test == "all_gather":
            return lambda: dist.all_gather_into_tensor(several, one)
        if test == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(one, several)
        into = self.zeros(index, self.size * count)
        return lambda: dist.all_to_all_single(into, several)


class SymmetricMemory(Nccl):
    """PyTorch's kernels over memory that all GPUs have mapped, without multicast; all_reduce only."""

    def enqueue(self, index: int, test: str, nbytes: int) -> Enqueue:
        if test != "all_reduce":
            raise PeerFailed("")
        memory = require_module("torch.distributed._symmetric_memory", INSTALL)
        group = self._dist.group.WORLD.group_name
        array = memory.empty(nbytes // 4, dtype=self.torch.float32, device=f"cuda:{self.gpus[0]}")
        memory.rendezvous(array, group)
        ops = self.torch.ops.symm_mem
        if nbytes <= 256 * KIB:
            return lambda: ops.one_shot_all_reduce(array, "sum", group)
        return lambda: ops.two_shot_all_reduce_(array, "sum", group)

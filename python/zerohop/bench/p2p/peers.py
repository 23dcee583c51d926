"""The peers of `zerohop bench p2p`: bare copies of the driver, PyTorch's `copy_` by CUDA IPC, and NCCL."""

from __future__ import annotations

import os
import pickle
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from zerohop.bench.loops import batches
from zerohop.bench.p2p.driver import Driver
from zerohop.bench.p2p.plan import (
    BATCHES,
    BLOCK_TESTS,
    HALO_NBYTES,
    HALO_PITCH,
    POSTS,
    ROUNDS,
    places,
)
from zerohop.bench.peers.torch import INSTALL, begin_group
from zerohop.bench.plan import Found, Order, PeerFailed
from zerohop.bench.workers import Player, require_module
from zerohop.local import Link

SAFE = {  # NVLink multicast can put the GPUs of a shared host out of service
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}
TORCH_SETTINGS = " ".join(f"{name}={value}" for name, value in SAFE.items())
LOOPBACK = ("NCCL_SOCKET_IFNAME", "lo")  # both ranks are on this machine
NCCL_SETTINGS = f"{TORCH_SETTINGS} {'='.join(LOOPBACK)}"
NCCL_BOUND_S = 30.0  # bound of NCCL's own waits
# At most the real clock rate of a GPU, so the gate may hold longer than requested.
CYCLES_PER_S = 2e9
GATE_S = 5e-3  # it holds this much longer than the last enqueueing took
# Without this check an illegal memory access would end the process.
NO_KERNEL = (
    "PyTorch opens the other process's memory only for the GPU on which it lies, so a kernel of another "
    "GPU, such as a strided copy, must not access it (pytorch/pytorch#64504)"
)
Enqueue = Callable[[], object]


class Copies(Player):
    """Enqueues copies into a stream, and finishes it. `first` reports the times; others may have to take part."""

    first = True
    takes_part = True

    def out(self, nbytes: int) -> Enqueue:
        """Returns a function that enqueues a copy from here to there."""
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def meet(self) -> None:
        """Waits for the other rank, if both are needed."""

    def timed(self, enqueue: Enqueue, times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            enqueue()
        self.finish()
        return time.perf_counter() - begin

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        if not self.takes_part:
            return ()
        self.meet()
        copy = self.out(nbytes)
        samples = [self.timed(copy, 1) for _ in range(times)]
        return samples if self.first else ()

    def write(self, nbytes: int, times: int) -> float:
        if not self.takes_part:
            return 0.0
        self.meet()
        return self.timed(self.out(nbytes), times)

    def post_write(self, nbytes: int, times: int) -> Found:
        if not self.takes_part:
            return {}
        self.meet()
        seconds = batches(self.out(nbytes), POSTS, BATCHES, lambda _: self.finish())
        return {"per_call": statistics.median(seconds)} if self.first else {}


class Raw(Copies):
    """cuMemcpyPeerAsync in one process: the speed of the driver and the link, without notification or list."""

    def __init__(
        self, link: Link, gpus: tuple[int, int], arena_nbytes: int, library: Any = None
    ) -> None:
        driver = Driver(library)
        self._here, self._there = (driver.gpu(ordinal) for ordinal in gpus)
        if gpus[0] != gpus[1]:
            self._here.reach(self._there)
            self._there.reach(self._here)
        self._half = arena_nbytes // 2
        self._near = self._here.allocate(arena_nbytes)
        self._far = self._there.allocate(arena_nbytes)
        self._streams = self._here.stream(), self._there.stream()
        self.both(8, 1)  # set-up at the first use is not timed

    def perform(self, order: Order) -> Any:
        if block := BLOCK_TESTS.get(order.test):
            numbers = places(order.nbytes // block).tolist()
            moves = [(i * block, j * block, block) for i, j in enumerate(numbers)]
            return self._each(moves, order.times)
        return super().perform(order)

    def out(self, nbytes: int) -> Enqueue:
        return self._move(0, 0, nbytes)

    def finish(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def read(self, nbytes: int, times: int) -> float:
        return self.timed(self._back(0, nbytes), times)

    def both(self, nbytes: int, times: int) -> float:
        out, back = self.out(nbytes), self._back(1, nbytes)
        return self.timed(lambda: (out(), back()), times)

    def halo(self, nbytes: int, times: int) -> float:
        """Row by row."""
        last = HALO_PITCH - HALO_NBYTES
        rows = [i * HALO_PITCH for i in range(nbytes // HALO_NBYTES)]
        return self._each([(row, row + last, HALO_NBYTES) for row in rows], times)

    def _move(self, offset: int, place: int, nbytes: int) -> Enqueue:
        """Copies from here to there, from and to these offsets in the two halves."""
        target = self._there, self._far + self._half + place
        return self._streams[0].copier(target, (self._here, self._near + offset), nbytes)

    def _back(self, stream: int, nbytes: int) -> Enqueue:
        target = self._here, self._near + self._half
        return self._streams[stream].copier(target, (self._there, self._far), nbytes)

    def _each(self, moves: list[tuple[int, int, int]], times: int) -> float:
        copies = [self._move(*move) for move in moves]

        def enqueue() -> None:
            for copy in copies:
                copy()

        return self.timed(enqueue, times)


def torch_with_gpus() -> Any:
    """Imports PyTorch in a worker process. Raises PeerFailed if it is missing or sees no GPU."""
    os.environ.update(SAFE)
    torch = require_module("torch", INSTALL)
    if not torch.cuda.is_available():
        raise PeerFailed(f"PyTorch {torch.__version__} sees no GPU: install a build for CUDA")
    return torch


class Torch(Copies):
    """`copy_` into a tensor of the other process, which CUDA IPC maps (torch.multiprocessing)."""

    def __init__(self, link: Link, gpus: tuple[int, int], arena_nbytes: int) -> None:
        self._torch = torch_with_gpus()
        self._link = link
        self.first = self.takes_part = link.rank == 0
        self._one_gpu = gpus[0] == gpus[1]
        self._half = arena_nbytes // 2
        device = self._torch.device("cuda", gpus[link.rank])
        self._torch.cuda.set_device(device)
        self._near = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8, device=device)
        self._torch.cuda.synchronize()
        reductions = require_module("torch.multiprocessing.reductions", INSTALL)
        card = pickle.dumps(reductions.reduce_tensor(self._near))  # bytes: no torch in the parent
        rebuild, arguments = pickle.loads(link.exchange(card)[1 - link.rank])
        self._far = rebuild(*arguments)
        # PyTorch enables a GPU's access to the other's memory at the first copy in that direction. Once both have
        # access, either of them can copy between the two; until then a copy may go through the host.
        for copy in (self.out(8), self._back(8)):
            self.timed(copy, 1)
        link.exchange(None)

    def facts(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}

    def close(self) -> None:
        """Each releases the other's memory before either frees its own."""
        self._torch.cuda.synchronize()
        del self._far
        self._link.exchange(None)

    def finish(self) -> None:
        self._torch.cuda.current_stream().synchronize()

    def out(self, nbytes: int) -> Enqueue:
        target, source = self._far[self._half : self._half + nbytes], self._near[:nbytes]
        return lambda: target.copy_(source, non_blocking=True)

    def _back(self, nbytes: int) -> Enqueue:
        target, source = self._near[self._half : self._half + nbytes], self._far[:nbytes]
        return lambda: target.copy_(source, non_blocking=True)

    def read(self, nbytes: int, times: int) -> float:
        return self.timed(self._back(nbytes), times) if self.first else 0.0

    def both(self, nbytes: int, times: int) -> float:
        self._link.exchange(None)
        return self.timed(self.out(nbytes), times)

    def halo(self, nbytes: int, times: int) -> float:
        if not self._one_gpu:
            raise PeerFailed(NO_KERNEL)
        if not self.first:
            return 0.0
        rows = nbytes // HALO_NBYTES
        whole = rows * HALO_PITCH
        source = self._near[:whole].view(rows, HALO_PITCH)[:, :HALO_NBYTES]
        far = self._far[self._half : self._half + whole].view(rows, HALO_PITCH)
        target = far[:, -HALO_NBYTES:]
        return self.timed(lambda: target.copy_(source, non_blocking=True), times)


class Nccl(Copies):
    """torch.distributed's send and recv: rank 1 receives what rank 0 sends."""

    def __init__(self, link: Link, gpus: tuple[int, int], arena_nbytes: int) -> None:
        os.environ.setdefault(*LOOPBACK)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        self._torch = torch_with_gpus()
        self._dist = require_module("torch.distributed", INSTALL)
        self._link = link
        self.first = link.rank == 0
        self._other = 1 - link.rank
        device = self._torch.device("cuda", gpus[link.rank])
        self._torch.cuda.set_device(device)
        begin_group(self._dist, "nccl", link, NCCL_BOUND_S)
        half = arena_nbytes // 2
        arena = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8, device=device)
        self._outbox, self._inbox = arena[:half], arena[half:]
        for act in self._acts(8):  # makes the connection
            act()
        self.finish()
        self.both(8, 1)  # set-up at the first use is not timed
        link.exchange(None)

    def facts(self) -> dict[str, str]:
        return {"nccl": ".".join(map(str, self._torch.cuda.nccl.version()))}

    def close(self) -> None:
        self._dist.destroy_process_group()

    def _acts(self, nbytes: int) -> list[Enqueue]:
        """Send a ball and receive it back."""
        outbox, inbox, other = self._outbox[:nbytes], self._inbox[:nbytes], self._other
        acts = [lambda: self._dist.send(outbox, other), lambda: self._dist.recv(inbox, other)]
        return acts if self.first else acts[::-1]

    def out(self, nbytes: int) -> Enqueue:
        return self._acts(nbytes)[0]

    def finish(self) -> None:
        self._torch.cuda.synchronize()

    def meet(self) -> None:
        self._link.exchange(None)

    def both(self, nbytes: int, times: int) -> float:
        dist = self._dist
        operations = [
            dist.P2POp(dist.isend, self._outbox[:nbytes], self._other),
            dist.P2POp(dist.irecv, self._inbox[:nbytes], self._other),
        ]

        def exchange() -> None:
            for work in dist.batch_isend_irecv(operations):
                work.wait()  # orders the stream after it, without blocking this thread

        self.meet()
        return self.timed(exchange, times)

    def stream_notify(self, nbytes: int, times: int) -> Found:
        """A ping-pong of ROUNDS, enqueued ahead, while a spinning kernel blocks rank 0's stream."""
        acts = self._acts(nbytes)

        def enqueue() -> float:
            begin = time.perf_counter()
            for _ in range(ROUNDS):
                for act in acts:
                    act()
            return time.perf_counter() - begin

        enqueueing = enqueue()
        self.finish()
        longest = max(self._link.exchange(enqueueing))
        if self.first:
            self._torch.cuda._sleep(int((2 * longest + GATE_S) * CYCLES_PER_S))
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        enqueue()
        events[1].record()
        self.finish()
        return {"one_way": events[0].elapsed_time(events[1]) * 1e-3 / ROUNDS / 2}

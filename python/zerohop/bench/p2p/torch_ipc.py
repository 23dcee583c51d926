"""The peer "torch": `copy_` into a tensor of the other process, which CUDA IPC maps (torch.multiprocessing)."""

from __future__ import annotations

import importlib
import os
import pickle
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from zerohop.bench.p2p.plan import BATCHES, HALO_NBYTES, HALO_PITCH, POSTS
from zerohop.bench.peer import PeerFailed
from zerohop.local import Link

SAFE = {  # NVLink multicast can put the GPUs of a shared host out of service
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}
SETTINGS = " ".join(f"{name}={value}" for name, value in SAFE.items())
# Found out by an illegal memory access, which ends the process.
NO_KERNEL = (
    "PyTorch opens the other process's memory for the GPU alone on which it lies, so that a kernel of another "
    "GPU, which a strided copy is, must not touch it (pytorch/pytorch#64504)"
)


def torch_with_gpus() -> Any:
    """The module, in a process of its own. Raises PeerFailed where it is missing or sees no GPU."""
    os.environ.update(SAFE)
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise PeerFailed(f"PyTorch is not installed ({error}): pip install torch") from None
    if not torch.cuda.is_available():
        raise PeerFailed(f"PyTorch {torch.__version__} sees no GPU: install a build for CUDA")
    return torch


class Torch:
    def __init__(self, link: Link, gpus: tuple[int, int], arena_nbytes: int) -> None:
        self._torch = torch_with_gpus()
        self._link = link
        self._first = link.rank == 0
        self._one_gpu = gpus[0] == gpus[1]
        self._half = arena_nbytes // 2
        device = self._torch.device("cuda", gpus[link.rank])
        self._torch.cuda.set_device(device)
        self._near = self._torch.zeros(arena_nbytes, dtype=self._torch.uint8, device=device)
        self._torch.cuda.synchronize()
        reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
        card = pickle.dumps(reductions.reduce_tensor(self._near))  # bytes: no torch in the parent
        rebuild, arguments = pickle.loads(link.exchange(card)[1 - link.rank])
        self._far = rebuild(*arguments)
        # PyTorch lets a GPU reach the other's memory at the first copy that way. Once both do, either of
        # them can carry out a copy between the two; until then it may go through the host.
        for copy in (self._out(8), self._back(8)):
            self._timed(copy, 1)
        link.exchange(None)

    def facts(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}

    def close(self) -> None:
        """Each lets go of the other's memory before either frees its own."""
        self._torch.cuda.synchronize()
        del self._far
        self._link.exchange(None)

    def _timed(self, enqueue: Callable[[], object], times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            enqueue()
        self._torch.cuda.current_stream().synchronize()
        return time.perf_counter() - begin

    def _out(self, nbytes: int) -> Callable[[], object]:
        target, source = self._far[self._half : self._half + nbytes], self._near[:nbytes]
        return lambda: target.copy_(source, non_blocking=True)

    def _back(self, nbytes: int) -> Callable[[], object]:
        target, source = self._near[self._half : self._half + nbytes], self._far[:nbytes]
        return lambda: target.copy_(source, non_blocking=True)

    def write_latency(self, nbytes: int, times: int) -> Sequence[float]:
        if not self._first:
            return ()
        copy = self._out(nbytes)
        return [self._timed(copy, 1) for _ in range(times)]

    def write(self, nbytes: int, times: int) -> float:
        return self._timed(self._out(nbytes), times) if self._first else 0.0

    def read(self, nbytes: int, times: int) -> float:
        if not self._first:
            return 0.0
        return self._timed(self._back(nbytes), times)

    def both(self, nbytes: int, times: int) -> float:
        self._link.exchange(None)
        return self._timed(self._out(nbytes), times)

    def post_write(self, nbytes: int, times: int) -> dict[str, float]:
        if not self._first:
            return {}
        return {"per_call": call_cost(self._out(nbytes), self._torch.cuda.synchronize)}

    def halo(self, nbytes: int, times: int) -> float:
        if not self._one_gpu:
            raise PeerFailed(NO_KERNEL)
        if not self._first:
            return 0.0
        rows = nbytes // HALO_NBYTES
        whole = rows * HALO_PITCH
        source = self._near[:whole].view(rows, HALO_PITCH)[:, :HALO_NBYTES]
        far = self._far[self._half : self._half + whole].view(rows, HALO_PITCH)
        target = far[:, -HALO_NBYTES:]
        return self._timed(lambda: target.copy_(source, non_blocking=True), times)


def call_cost(call: Callable[[], object], finish: Callable[[], object]) -> float:
    """Median seconds of a call, over batches of which each is finished before the next."""
    batches = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(POSTS):
            call()
        batches.append((time.perf_counter() - begin) / POSTS)
        finish()
    return statistics.median(batches)

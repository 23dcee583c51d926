"""Where a rank computes: on the CPU with NumPy, or on a GPU with CuPy and the kernels of one .cu file."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from zerohop.device import compile_options
from zerohop.examples.failures import KernelFailed

__all__ = [
    "HERE",
    "PATIENCE_NS",
    "Cpu",
    "Gpu",
    "Place",
    "choose_devices",
    "choose_ways",
    "open_place",
]

HERE = Path(__file__).parent
# Of every wait inside a kernel. Longer than a peer takes to be lost (5 s), so that who was killed is told as such, and
# than the CPU of the other side needs between two launches.
PATIENCE_NS = 10_000_000_000
_LOOK_S = 1e-4  # between two looks at whether a kernel has ended


@dataclass(frozen=True)
class Framework:
    """modules: of which one must be there for GPUs."""

    what: str
    modules: tuple[str, ...]
    remedy: str


_FRAMEWORKS = {
    "cupy": Framework("CuPy, whose arrays and kernels are used", ("cupy",), "'zerohop[cupy]'"),
    "torch": Framework("PyTorch, whose tensors are used", ("torch",), "'zerohop[torch]'"),
    "jax": Framework("JAX for CUDA", ("jax_cuda13_plugin", "jax_cuda12_plugin"), "'jax[cuda13]'"),
}
_ENDINGS = {  # zerohop::device::Status, and what the kernels here have beside it
    1: "waited in vain for {seconds:.0f} s",
    2: "moved bytes out of an array's bounds",
    3: "wrote to an array that is read-only",
    4: "wrote an element at no multiple of its size",
    5: "named a slot that is not one of the board's",
    6: "found that no peer is left that could notify",
    7: "was refused by the adapter",
    100: "was notified of another round than the one it waited for",
}


class Cpu:
    """NumPy arrays in the host's memory."""

    xp: Any = np
    stream: Any = None

    def __init__(self) -> None:
        self.device = "cpu"

    def bytes_of(self, memory: Any) -> Any:
        """The uint8 array of a segment's part."""
        return np.asarray(memory)

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        """The array itself, or a copy."""
        return np.asarray(array)

    def finish(self) -> None:
        """Returns when all that was launched here is done: nothing is, on a CPU."""


class Gpu:
    """CuPy arrays of one GPU, the kernels of `source` loaded on it, and a stream.

    Compiled and loaded at once: CUDA may hold up what loads a kernel while another one waits.
    """

    def __init__(self, device: str, source: Path) -> None:
        self.xp = import_module("cupy")
        self.device, self.ordinal = device, int(device.partition(":")[2])
        self._gpu = self.xp.cuda.Device(self.ordinal)
        self._gpu.use()
        self.stream = self.xp.cuda.Stream(non_blocking=True)
        self._module = self.xp.RawModule(code=source.read_text(), options=compile_options(HERE))
        self._module.compile()

    def kernel(self, name: str) -> Any:
        """A function (grid, block, arguments, stream=, shared_mem=)."""
        kernel = self._module.get_function(name)
        assert kernel.num_regs > 0  # who asks has it loaded now, not at the first launch
        return kernel

    def shared_nbytes(self) -> int:
        """Shared memory that a block may have if it asks for it."""
        return int(self._gpu.attributes["MaxSharedMemoryPerBlockOptin"])

    def resident(self, kernel: Any, threads: int, shared: int = 0) -> int:
        """How many blocks of the kernel run at once: what may wait for each other."""
        driver = self.xp.cuda.driver
        each = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, shared)
        return int(each) * int(self._gpu.attributes["MultiProcessorCount"])

    def bytes_of(self, memory: Any) -> Any:
        return self.xp.from_dlpack(memory)

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        host: npt.NDArray[Any] = self.xp.asnumpy(array)
        return host

    def finish(self) -> None:
        self.xp.cuda.runtime.deviceSynchronize()

    def new_ending(self) -> Any:
        """For a kernel to say why it ends: the Ending of blocks.cuh, all zeros."""
        ending = self.xp.zeros(4, "uint32")
        self.finish()
        return ending

    def await_kernel(self, what: str, ending: Any, look: Callable[[], None] = lambda: None) -> None:
        """Returns when what was put into the stream is done; `look` is called meanwhile. Raises KernelFailed."""
        event = self.stream.record()
        while not event.done:  # bounded by the kernel's own patience
            look()
            time.sleep(_LOOK_S)  # the look decides; the pause leaves the CPU to others
        status, block, round_, _ = (int(word) for word in self.to_host(ending))
        if status != 0:
            why = _ENDINGS.get(status, f"ended with status {status}")
            why = why.format(seconds=PATIENCE_NS / 1e9)
            raise KernelFailed(f"{what} on {self.device}: block {block} {why}, in round {round_}")


Place = Cpu | Gpu


def open_place(device: str, source: Path) -> Place:
    return Cpu() if device == "cpu" else Gpu(device, source)


def choose_devices(text: str | None, framework: str = "cupy") -> tuple[str, ...]:
    """What --device names: ("cpu",) or GPUs; None: all GPUs, where there are some and the framework is.

    Raises ValueError.
    """
    if text is None:
        return () if _why_no_gpu(framework) else tuple(f"cuda:{i}" for i in range(_gpu_count()))
    if text == "cpu":
        return ("cpu",)
    devices = tuple(text.split(","))
    if "cpu" in devices:
        others = ",".join(device for device in devices if device != "cpu") or "cuda:0"
        raise ValueError(
            f"--device {text}: all ranks run on the CPU, or all on GPUs: --device cpu, or --device {others}"
        )
    for device in devices:
        kind, _, ordinal = device.partition(":")
        if kind != "cuda" or not ordinal.isdecimal():
            raise ValueError(
                f"{device!r} is no device: --device cpu, or GPUs such as cuda:0,cuda:1"
            )
        if why := _why_no_gpu(framework):
            raise ValueError(f"--device {text}: {why}, or use --device cpu")
        if int(ordinal) >= _gpu_count():
            raise ValueError(
                f"{device!r}: of GPUs this process sees {_gpu_count()}, from cuda:0 on"
            )
    return devices


def choose_ways(by: str | None, devices: tuple[str, ...]) -> tuple[str, ...]:
    """What --by names, of "host" and "kernel"; None: all that run on the devices. Raises ValueError."""
    on_gpus = bool(devices) and devices != ("cpu",)
    if by in ("kernel", "both") and not on_gpus:
        why = _why_no_gpu() or "name it: --device cuda:0"
        raise ValueError(f"--by {by} runs kernels, which takes a GPU: {why}, or use --by host")
    if by in (None, "both"):
        return ("host", "kernel") if on_gpus else ("host",)
    assert by is not None
    return (by,)


def _gpu_count() -> int:
    from zerohop import _core

    return _core.gpu_count()


def _why_no_gpu(framework: str = "cupy") -> str | None:
    """With the remedy; None: there is one, and the framework."""
    if _gpu_count() == 0:
        return "this process sees no NVIDIA GPU (nvidia-smi and CUDA_VISIBLE_DEVICES tell why)"
    wanted = _FRAMEWORKS[framework]
    if all(importlib.util.find_spec(module) is None for module in wanted.modules):
        return f"{wanted.what}, is not installed: pip install {wanted.remedy}"
    return None

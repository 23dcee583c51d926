"""Facts that are not in files: answers of libcuda, libibverbs and the kernel."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PROBE_TIMEOUT_S = 60.0  # a first context on eight GPUs takes tens of seconds


@dataclass(frozen=True)
class CudaDevice:
    name: str
    pci: str  # "0000:06:00.0"
    nbytes: int  # of its memory
    attributes: dict[str, int]  # see cuda_probe.ATTRIBUTES; 0 if the driver does not know one
    bar1_nbytes: int = 0  # of its window for other PCIe devices, from NVML; 0: unknown
    bar1_used: int = 0


@dataclass(frozen=True)
class Cuda:
    reason: str = ""  # why there are no devices
    code: int = 0  # the CUDA error in the reason
    version: int = 0  # 13000 is CUDA 13.0
    devices: tuple[CudaDevice, ...] = ()
    peers: frozenset[tuple[int, int]] = frozenset()  # (a, b): a can access memory of b
    ipc: tuple[
        str, ...
    ] = ()  # for each GPU, why another process cannot open its memory; "": it can


@dataclass(frozen=True)
class VerbsDevice:
    name: str
    reason: str = ""  # why it cannot be opened
    mtus: dict[str, list[int]] = field(default_factory=dict)  # port: [active, maximum] in bytes
    dma_buf_errno: int | None = None
    # Of a request for relaxed ordering; 0: accepted, None: unknown.
    relaxed_errno: int | None = None
    # Its path in /sys, "" if it has none; None: not mlx5, or too old.
    data_direct: str | None = None


@dataclass(frozen=True)
class Verbs:
    reason: str = ""  # why there is no libibverbs
    devices: tuple[VerbsDevice, ...] = ()


def ask_cuda() -> Cuda:
    answer = _run("cuda_probe.py")
    devices = tuple(CudaDevice(**device) for device in answer.pop("devices", ()))
    peers = frozenset((a, b) for a, b in answer.pop("peers", ()))
    ipc = tuple(answer.pop("ipc", ()))
    return Cuda(devices=devices, peers=peers, ipc=ipc, **answer)


def ask_verbs() -> Verbs:
    answer = _run("verbs_probe.py")
    devices = tuple(VerbsDevice(**device) for device in answer.pop("devices", ()))
    return Verbs(devices=devices, **answer)


def _run(script: str) -> dict[str, Any]:
    """The output of a probe; {"reason": ...} if it died, hung or printed something else."""
    command = [sys.executable, str(Path(__file__).with_name(script))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except OSError as error:
        return {"reason": f"{script} cannot be started: {error}"}
    except subprocess.TimeoutExpired:
        return {"reason": f"{script} did not answer within {PROBE_TIMEOUT_S:.0f} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return {"reason": f"{script} ended with status {done.returncode}: {last[0]}"}
    return answer


def may_open(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def memlock() -> int | None:
    """Bytes that this process may pin (ulimit -l); None when unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def vm_problem() -> str:
    """Why process_vm_readv fails even for this process, as under container filters; "" if it works."""
    word, copy = ctypes.c_uint64(42), ctypes.c_uint64()
    size = ctypes.sizeof(word)
    remote, local = (_Range(ctypes.addressof(place), size) for place in (word, copy))
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if library.process_vm_readv(*arguments) == size:
        return ""
    return f"process_vm_readv: {os.strerror(ctypes.get_errno())}"


class _Range(ctypes.Structure):  # struct iovec
    _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


def torch_cuda() -> str | None:
    """The CUDA version PyTorch was built for ("13.0"), without importing it; None if there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=]*=\s*['\"](\d+\.\d+)", text, re.MULTILINE)
    return match.group(1) if match else None


NBYTES = 64 << 10
TIMEOUT_S = 5.0


def loopback() -> tuple[bool, str]:
    """Whether bytes and a notification arrive, with a text; takes at most a few seconds."""
    from zerohop.endpoint import Endpoint
    from zerohop.errors import Error

    begin = time.perf_counter()
    sent = np.random.default_rng(1).integers(0, 256, NBYTES, dtype="uint8")
    try:
        with (
            Endpoint("soft0", timeout=TIMEOUT_S, p2p=0) as here,
            Endpoint("soft0", timeout=TIMEOUT_S, p2p=0) as there,
        ):
            inbox = there.empty(NBYTES)
            here.connect(there.address).write(
                here.register(sent), inbox.remote, notify=(1, 1)
            ).wait()
            there.wait_notify(1)
            arrived = bool(np.array_equal(np.asarray(inbox), sent))
    except (Error, OSError, ValueError) as error:
        return False, str(error)
    if not arrived:
        return False, f"the bytes that arrived differ from the {NBYTES} that were written"
    return True, f"64 KiB and a notification arrived; {time.perf_counter() - begin:.2f} s in total"

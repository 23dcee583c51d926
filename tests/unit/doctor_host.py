"""A Host for the doctor's tests: a tree written by machine.py, and answers that a test chooses."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from machine import Machine
from zerohop.doctor.facts import Cuda, CudaDevice, Verbs, VerbsDevice
from zerohop.doctor.host import Host

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC: 15"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"
EBADF, EOPNOTSUPP = 9, 95
ROOT_CAPABILITIES = "CapEff:\t000001fffeffffff"

H200 = {
    "compute_mode": 0,
    "virtual_memory": 1,
    "posix_fd_handles": 1,
    "gpudirect_vmm": 1,
    "gpudirect": 1,
    "flush_options": 1,
    "write_order": 100,
    "dma_buf": 1,
    "ipc_events": 1,
    "fabric_handles": 0,
}
NBYTES = 141 << 30


def cuda_of(machine: Machine, **attributes: int) -> Cuda:
    """What libcuda would say of the GPUs of a machine; attributes replace those of an H200."""
    addresses = sorted(path.name for path in machine.proc.glob("driver/nvidia/gpus/*"))
    devices = tuple(CudaDevice("H200", a, NBYTES, {**H200, **attributes}) for a in addresses)
    peers = frozenset(permutations(range(len(devices)), 2))
    return Cuda(version=13000, devices=devices, peers=peers, ipc=("",) * len(devices))


def verbs_of(machine: Machine, errno: int | None = EBADF, mtu: int = 4096) -> Verbs:
    """What libibverbs would say of the RDMA devices of a machine."""
    found = []
    for path in sorted((machine.sys / "class/infiniband").glob("*")):
        ports = sorted(port.name for port in path.glob("ports/*"))
        mtus = {port: [mtu, 4096] for port in ports}
        found.append(VerbsDevice(path.name, mtus=mtus, dma_buf_errno=errno, relaxed_errno=0))
    return Verbs(devices=tuple(found))


def host_of(machine: Machine, **answers: Any) -> Host:
    """A Host that reads this machine and asks nothing else; answers replace fields of Host by value."""
    chosen: dict[str, Any] = {
        "cuda": cuda_of(machine),
        "verbs": verbs_of(machine),
        "memlock": None,
        "vm": "",
        "torch_cuda": None,
        "loopback": (True, "arrived"),
        "kernels": True,
        "nvtx": True,
        **answers,
    }
    environ = chosen.pop("environ", {})
    access = chosen.pop("access", True)
    asks = {f"ask_{name}": _always(value) for name, value in chosen.items()}
    host = Host(machine.root, environ, ask_access=_always(access))
    return replace(host, **asks)


def _always(value: Any) -> Any:
    return lambda *_: value


def offer_device_files(machine: Machine) -> None:
    """Device files of NVIDIA's driver and of every RDMA device."""
    for name in ("nvidiactl", "nvidia-uvm"):
        machine.write(f"dev/{name}", "")
    for minor in range(len(list(machine.proc.glob("driver/nvidia/gpus/*")))):
        machine.write(f"dev/nvidia{minor}", "")
    offer_uverbs(machine, [path.name for path in (machine.sys / "class/infiniband").glob("*")])


def offer_uverbs(machine: Machine, devices: Sequence[str]) -> None:
    for index, device in enumerate(sorted(devices)):
        machine.write(f"sys/class/infiniband_verbs/uverbs{index}/ibdev", device)
        machine.write(f"dev/infiniband/uverbs{index}", "")

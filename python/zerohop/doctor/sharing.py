"""Checks of what lets processes of one host reach each other's GPU memory."""

from __future__ import annotations

from itertools import permutations

from zerohop.doctor.finding import Finding
from zerohop.doctor.gpudirect import exports_dma_buf
from zerohop.doctor.host import CAP_SYS_PTRACE, Host

ONE_PROCESS = 3  # CU_COMPUTEMODE_EXCLUSIVE_PROCESS
PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED


def p2p(host: Host) -> Finding:
    """Which GPUs can access each other's memory (cuDeviceCanAccessPeer)."""
    count = len(host.cuda.devices)
    if count < 2:
        return Finding("p2p", "absent", "fewer than two GPUs")
    missing = sorted(set(permutations(range(count), 2)) - host.cuda.peers)
    pairs = {tuple(sorted(pair)) for pair in missing}
    links = {host.topology.label(*pair) for pair in _known_pairs(host, count)}
    if not missing:
        over = f", over {', '.join(sorted(links))}" if links else ""
        return Finding("p2p", "ok", f"every pair of {count} GPUs{over}")
    text = ", ".join(f"cuda:{a} and cuda:{b}" for a, b in sorted(pairs))
    fix = "see `nvidia-smi topo -p2p r`; virtual machines and GeForce models often cannot"
    if len(missing) == count * (count - 1):
        return Finding("p2p", "fail", "no GPU can access another one", fix)
    return Finding("p2p", "warn", f"not between {text}", fix)


def _known_pairs(host: Host, count: int) -> list[tuple[str, str]]:
    if len(host.topology.cuda) != count:
        return []
    names = [gpu.name for gpu in host.topology.cuda]
    return [(a, b) for a, b in permutations(names, 2) if a < b]


def ipc(host: Host) -> Finding:
    """Whether another process can open GPU memory: one was started and tried it on cuda:0."""
    if not host.cuda.devices:
        return Finding("ipc", "absent", host.cuda.reason)
    modes = {device.attributes["compute_mode"] for device in host.cuda.devices}
    if modes & {ONE_PROCESS, PROHIBITED}:
        fix = "allow several processes on a GPU: nvidia-smi -c DEFAULT"
        return Finding("ipc", "fail", "a GPU's compute mode is not DEFAULT", fix)
    if host.cuda.ipc:
        fix = "start containers with --ipc=host --pid=host; instances of MIG cannot share memory"
        return Finding("ipc", "fail", host.cuda.ipc, fix)
    handles = all(device.attributes["posix_fd_handles"] for device in host.cuda.devices)
    how = "IPC handles and file descriptors" if handles else "IPC handles, no file descriptors"
    return Finding("ipc", "ok", f"another process opened memory of cuda:0 ({how})")


def fd_passing(host: Host) -> Finding:
    """Whether descriptors of GPU memory can be fetched from another process by pidfd_getfd.

    It needs the right to ptrace (man pidfd_getfd; kernel: admin-guide/LSM/Yama.rst). zerohop does
    not use it; PyTorch and UCX do.
    """
    if not host.topology.gpus:
        return Finding("fd-passing", "absent", "no NVIDIA GPU")
    scope = host.tree.integer("proc/sys/kernel/yama/ptrace_scope") or 0
    problem = host.ask_pidfd()
    if problem:
        fix = "start the container with --cap-add=SYS_PTRACE; zerohop itself needs no pidfd_getfd"
        return Finding("fd-passing", "warn", problem, fix)
    if scope and not (scope < 3 and host.capable(CAP_SYS_PTRACE)):
        fix = "sysctl kernel.yama.ptrace_scope=0; zerohop itself needs no pidfd_getfd"
        return Finding("fd-passing", "warn", f"ptrace_scope is {scope}", fix)
    return Finding("fd-passing", "ok", f"pidfd_getfd works, ptrace_scope is {scope}")


def expandable_segments(host: Host) -> Finding:
    """PyTorch's expandable segments are many small allocations: only dma-buf registers them.

    nvidia-peermem fails on them with EFAULT (PyTorch issue 153688, Mooncake issue 351).
    """
    text = ",".join(
        host.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    )
    on = "expandable_segments:true" in text.lower().replace(" ", "")
    if not host.cuda.devices:
        return Finding("expandable-segments", "absent", host.cuda.reason)
    if not on:
        return Finding("expandable-segments", "ok", "off")
    if exports_dma_buf(host):
        return Finding("expandable-segments", "ok", "on, and dma-buf registers them")
    fix = "take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF, or see dma-buf"
    return Finding("expandable-segments", "warn", "on, but there is no dma-buf", fix)

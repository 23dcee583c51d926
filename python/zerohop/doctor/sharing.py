"""Checks whether processes of one host reach each other's GPU memory."""

from __future__ import annotations

from itertools import permutations

from zerohop.doctor.finding import Finding
from zerohop.doctor.gpudirect import exports_dma_buf
from zerohop.doctor.host import CAP_SYS_PTRACE, Host

ONE_PROCESS = 3  # CU_COMPUTEMODE_EXCLUSIVE_PROCESS
NOBODY = 3  # ptrace_scope: no process may trace
PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED


def p2p_matrix(host: Host) -> list[list[str]]:
    """Row a, column b: how cuda:a reaches memory of cuda:b: "NV18", "PIX", ...; or "no"."""
    count = len(host.cuda.devices)
    ordered = len(host.topology.cuda) == count
    names = [gpu.name for gpu in host.topology.cuda]

    def cell(a: int, b: int) -> str:
        if a != b and (a, b) not in host.cuda.peers:
            return "no"
        return host.topology.label(names[a], names[b]) if ordered else "X" if a == b else "yes"

    return [[cell(a, b) for b in range(count)] for a in range(count)]


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
    fix = "see `nvidia-smi topo -p2p r`; virtual machines and GeForce models often have no p2p"
    if len(missing) == count * (count - 1):
        return Finding("p2p", "fail", "no GPU can access another one", fix)
    return Finding("p2p", "warn", f"not between {text}", fix)


def _known_pairs(host: Host, count: int) -> list[tuple[str, str]]:
    if len(host.topology.cuda) != count:
        return []
    names = [gpu.name for gpu in host.topology.cuda]
    return [(a, b) for a, b in permutations(names, 2) if a < b]


def ipc(host: Host) -> Finding:
    """Whether another process can open GPU memory: a started process tried it on every GPU."""
    if not host.cuda.devices:
        return Finding("ipc", "absent", host.cuda.reason)
    modes = {device.attributes["compute_mode"] for device in host.cuda.devices}
    if modes & {ONE_PROCESS, PROHIBITED}:
        fix = "allow several processes on a GPU: nvidia-smi -c DEFAULT"
        return Finding("ipc", "fail", "a GPU's compute mode is not DEFAULT", fix)
    refusals: dict[str, list[str]] = {}
    for ordinal, reason in enumerate(host.cuda.ipc):
        if reason:
            refusals.setdefault(reason, []).append(f"cuda:{ordinal}")
    if refusals:
        fix = "start containers with --ipc=host --pid=host; instances of MIG cannot share memory"
        text = "; ".join(f"{', '.join(gpus)}: {reason}" for reason, gpus in refusals.items())
        return Finding("ipc", "fail", text, fix)
    handles = all(device.attributes["posix_fd_handles"] for device in host.cuda.devices)
    how = "IPC handles and file descriptors" if handles else "IPC handles, no file descriptors"
    gpus = ", ".join(f"cuda:{ordinal}" for ordinal in range(len(host.cuda.devices)))
    return Finding("ipc", "ok", f"another process opened memory of {gpus} ({how})")


def ptrace(host: Host) -> Finding:
    """Whether p2p reaches all host memory of this host's processes, by process_vm_writev.

    It needs the right to ptrace (man process_vm_writev; kernel: admin-guide/LSM/Yama.rst). Memory of
    Endpoint.empty() is mapped, and needs no such right.
    """
    limit = "p2p reaches only memory of Endpoint.empty()"
    later = "; until then a device carries transfers of other memory"
    problem = host.ask_vm()
    if problem:
        fix = f"start the container with --cap-add=SYS_PTRACE{later}"
        return Finding("ptrace", "warn", f"{problem}: {limit}", fix)
    scope = host.tree.integer("proc/sys/kernel/yama/ptrace_scope") or 0
    if scope == 0 or (scope < NOBODY and host.capable(CAP_SYS_PTRACE)):
        return Finding("ptrace", "ok", f"ptrace_scope is {scope}: p2p reaches all host memory")
    fix = f"sysctl kernel.yama.ptrace_scope=0, or give this process CAP_SYS_PTRACE{later}"
    if scope == NOBODY:
        fix = f"ptrace_scope=3 stays until the next boot: boot without it{later}"
    return Finding("ptrace", "warn", f"ptrace_scope is {scope}: {limit}", fix)


def expandable_segments(host: Host) -> Finding:
    """PyTorch's expandable segments are many small allocations: only dma-buf can register them.

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
    fix = "remove expandable_segments:True from PYTORCH_CUDA_ALLOC_CONF, or see dma-buf"
    return Finding("expandable-segments", "warn", "on, but there is no dma-buf", fix)

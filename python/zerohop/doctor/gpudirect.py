"""Checks of what lets an RDMA device read and write GPU memory."""

from __future__ import annotations

from zerohop.doctor.finding import Finding, State, worst
from zerohop.doctor.host import Host
from zerohop.host import human_bytes
from zerohop.topology import Gpu

# Any of these exists once a peer-memory module is loaded (NCCL and UCX look at the same ones).
PEERMEM = (
    "sys/module/nvidia_peermem/version",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "sys/module/nv_peer_mem/version",
)
HOST_FLUSH = 1  # CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
ORDERED_FOR_OWNER = 100  # CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER


def exports_dma_buf(host: Host) -> bool:
    devices = host.cuda.devices
    return bool(devices) and all(device.attributes["dma_buf"] for device in devices)


def dma_buf(host: Host) -> Finding:
    """CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED of each GPU: needs the open modules and Linux 5.12."""
    if not host.cuda.devices:
        return Finding("dma-buf", "absent", host.cuda.reason)
    unable = [d.name for d in host.cuda.devices if not d.attributes["dma_buf"]]
    if unable:
        fix = "install the open kernel modules on Linux 5.12 or newer, or load nvidia-peermem"
        return Finding("dma-buf", "warn", f"not exported by {', '.join(unable)}", fix)
    return Finding("dma-buf", "ok", f"exported by {len(host.cuda.devices)} GPUs")


def peermem(host: Host) -> Finding:
    """Whether nvidia-peermem is loaded: the way of registering GPU memory without dma-buf."""
    loaded = [path for path in PEERMEM if host.tree.exists(path)]
    if loaded:
        version = host.tree.text(loaded[0]) or "version unknown"
        return Finding("peermem", "ok", f"{loaded[0].split('/')[-2]} is loaded ({version})")
    if not (host.topology.gpus and host.topology.rdma):
        return Finding("peermem", "absent", "no pair of GPU and RDMA device")
    if exports_dma_buf(host):
        return Finding("peermem", "absent", "not loaded, and not needed beside dma-buf")
    return Finding("peermem", "warn", "not loaded, and no dma-buf", "modprobe nvidia-peermem")


def write_order(host: Host) -> Finding:
    """Whether a GPU sees incoming RDMA writes in order, and how they are flushed if not.

    Source: cuda.h, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_{SUPPORTED, WRITES_ORDERING,
    FLUSH_WRITES_OPTIONS}.
    """
    if not host.cuda.devices:
        return Finding("write-order", "absent", host.cuda.reason)
    lines: list[str] = []
    bad = False
    for device in host.cuda.devices:
        order = device.attributes["write_order"]
        options = device.attributes["flush_options"]
        if not device.attributes["gpudirect"]:
            lines, bad = [*lines, f"{device.name}: no GPUDirect RDMA"], True
        elif order >= ORDERED_FOR_OWNER:
            lines.append(f"{device.name}: in order ({order}), no flush needed")
        elif options & HOST_FLUSH:
            lines.append(f"{device.name}: flushed by cuFlushGPUDirectRDMAWrites")
        else:
            lines, bad = [*lines, f"{device.name}: no order and no flush call"], True
    evidence = "; ".join(dict.fromkeys(lines))
    if bad:
        fix = "use Endpoint('soft0') for this GPU, which stages; GeForce models have no GPUDirect RDMA"
        return Finding("write-order", "warn", evidence, fix)
    return Finding("write-order", "ok", evidence)


def bar1(host: Host) -> Finding:
    """Whether all of a GPU's memory fits through its PCIe window, which limits what is registered."""
    sizes = {gpu.name: _window(host, gpu) for gpu in host.topology.gpus}
    known = {name: size for name, size in sizes.items() if size}
    if not known:
        return Finding("bar1", "absent", "no GPU whose PCIe windows can be read")
    memory = {device.pci: device.nbytes for device in host.cuda.devices}
    small = [
        f"{gpu.name}: {human_bytes(known[gpu.name])} for {human_bytes(memory[gpu.pci.address])}"
        for gpu in host.topology.gpus
        if gpu.name in known and known[gpu.name] < memory.get(gpu.pci.address, 0)
    ]
    if small:
        fix = "enable Above 4G Decoding and Resizable BAR in the firmware; register less at once"
        return Finding("bar1", "warn", "; ".join(small), fix)
    text = ", ".join(f"{name} {human_bytes(size)}" for name, size in known.items())
    return Finding("bar1", "ok", text)


def _window(host: Host, gpu: Gpu) -> int:
    """BAR1 in NVIDIA's counting: the second memory window, behind the registers in BAR0.

    /sys/.../resource has a line "begin end flags" for each BAR; a 64-bit BAR takes two lines.
    """
    text = host.tree.text(f"sys/bus/pci/devices/{gpu.pci.address}/resource") or ""
    sizes = []
    for line in text.splitlines()[:6]:
        begin, end = (int(word, 16) for word in line.split()[:2])
        if end > begin:
            sizes.append(end - begin + 1)
    return sizes[1] if len(sizes) > 1 else 0


def rdma_dma_buf(host: Host) -> Finding:
    """Whether each RDMA device registers dma-bufs: ibv_reg_dmabuf_mr refuses descriptor -1 by EBADF."""
    if not host.topology.gpus:
        return Finding("rdma-dma-buf", "absent", "no NVIDIA GPU")
    lines, states = [], list[State]()
    for device in host.verbs.devices:
        if device.reason:
            continue  # the check uverbs says why
        able = device.dma_buf_errno == 9  # EBADF
        states.append("ok" if able else "warn")
        why = "libibverbs too old" if device.dma_buf_errno is None else "refused by the driver"
        lines.append(f"{device.name}: " + ("registers dma-bufs" if able else why))
    if not lines:
        return Finding("rdma-dma-buf", "absent", "no RDMA device that can be opened")
    if worst(states) == "ok":
        return Finding("rdma-dma-buf", "ok", "; ".join(lines))
    fix = "take an adapter whose driver knows dma-buf (mlx5 on Linux 5.12), else nvidia-peermem"
    return Finding("rdma-dma-buf", "warn", "; ".join(lines), fix)

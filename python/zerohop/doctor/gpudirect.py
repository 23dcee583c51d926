"""Checks of what lets an RDMA device read and write GPU memory."""

from __future__ import annotations

import os

from zerohop.doctor.finding import Finding, gathered
from zerohop.doctor.host import Host
from zerohop.doctor.pcie import device_control
from zerohop.host import human_bytes
from zerohop.topology import Gpu

# One of these exists once a peer-memory module is loaded (NCCL and UCX check the same ones).
PEERMEM = (
    "sys/module/nvidia_peermem/version",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "sys/module/nv_peer_mem/version",
)
NEARLY_FULL = 0.9  # warn if a larger part of the window is in use
ALLOW_RELAXED = 0x10  # of the PCIe device control register
NO_GPUDIRECT = "use registration='staged' for this GPU; GeForce models have no GPUDirect RDMA"
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
    """Whether nvidia-peermem is loaded: it registers GPU memory without dma-buf."""
    loaded = [path for path in PEERMEM if host.tree.exists(path)]
    if loaded:
        version = host.tree.text(loaded[0]) or "version unknown"
        return Finding("peermem", "ok", f"{loaded[0].split('/')[-2]} is loaded ({version})")
    if not (host.topology.gpus and host.topology.rdma):
        return Finding("peermem", "absent", "no pair of GPU and RDMA device")
    if exports_dma_buf(host):
        return Finding("peermem", "absent", "not loaded, and not needed with dma-buf")
    return Finding("peermem", "warn", "not loaded, and no dma-buf", "modprobe nvidia-peermem")


def write_order(host: Host) -> Finding:
    """Whether a GPU sees incoming RDMA writes in order, and how they are flushed if not.

    Source: cuda.h, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_{SUPPORTED, WRITES_ORDERING,
    FLUSH_WRITES_OPTIONS}.
    """
    lines, fixes = [], []
    for device in host.cuda.devices:
        order = device.attributes["write_order"]
        options = device.attributes["flush_options"]
        if not device.attributes["gpudirect"]:
            lines.append(f"{device.name}: no GPUDirect RDMA")
            fixes.append(NO_GPUDIRECT)
        elif order >= ORDERED_FOR_OWNER:
            lines.append(f"{device.name}: in order ({order}), no flush needed")
        elif options & HOST_FLUSH:
            lines.append(f"{device.name}: flushed by cuFlushGPUDirectRDMAWrites")
        else:
            lines.append(f"{device.name}: no order and no flush call")
            fixes.append(NO_GPUDIRECT)
    return gathered("write-order", list(dict.fromkeys(lines)), fixes, host.cuda.reason)


def bar1(host: Host) -> Finding:
    """Whether all of a GPU's memory fits into its PCIe window, which limits registrations.

    The size comes from /sys, the use from NVML.
    """
    devices = {device.pci: device for device in host.cuda.devices}
    lines, fixes = [], []
    for gpu in host.topology.gpus:
        device = devices.get(gpu.pci.address)
        size = _window(host, gpu) or (device.bar1_nbytes if device else 0)
        if not size:
            continue
        line = f"{gpu.name}: {human_bytes(size)}"
        if device is not None and size < device.nbytes:
            line += f" for {human_bytes(device.nbytes)} of memory"
            fixes.append("enable Above 4G Decoding and Resizable BAR in the firmware")
        if device is not None and device.bar1_nbytes:
            line += f", {human_bytes(device.bar1_used)} in use"
            if device.bar1_used > NEARLY_FULL * device.bar1_nbytes:
                fixes.append("close registrations of other processes: nvidia-smi -q -d MEMORY")
        lines.append(line)
    return gathered("bar1", lines, fixes, "no GPU whose PCIe windows can be read")


def relaxed_ordering(host: Host) -> Finding:
    """Whether adapters may write to GPU memory in any order, which some platforms need for full speed.

    Registrations request it (knob relaxed_ordering, man ibv_reg_mr), and the PCIe
    device control register must allow it (PCI Express Base Specification 6.0, 7.5.3.4).
    """
    answers = {device.name: device for device in host.verbs.devices if not device.reason}
    adapters = [rdma for rdma in host.topology.rdma if rdma.pci and rdma.name in answers]
    lines, fixes = [], []
    for rdma in adapters if host.topology.gpus else ():
        assert rdma.pci is not None
        refusal = answers[rdma.name].relaxed_errno
        if refusal is None:
            verbs = "libibverbs is too old to ask for it"
            fixes.append("install rdma-core 28 or newer")
        elif refusal:
            verbs = f"refused by the adapter ({os.strerror(refusal)}), so zerohop does not use it"
        else:
            verbs = "accepted by the adapter"
        control = device_control(host.root, rdma.pci.address)
        if control is None:
            pcie = "PCIe control readable by root only"
        elif control & ALLOW_RELAXED:
            pcie = "allowed on PCIe"
        else:
            pcie = "switched off on PCIe"
            fixes.append(f"setpci -s {rdma.pci.address} CAP_EXP+8.w=10:10, or check the firmware")
        lines.append(f"{rdma.name}: {verbs}, {pcie}")
    return gathered("relaxed-ordering", lines, fixes, "no pair of GPU and PCIe RDMA device")


def data_direct(host: Host) -> Finding:
    """Whether an adapter has a second, direct path to GPU memory (mlx5 Data Direct, ConnectX-8)."""
    asked = [device for device in host.verbs.devices if device.data_direct is not None]
    having = [f"{device.name}: {device.data_direct}" for device in asked if device.data_direct]
    if not host.topology.gpus or not asked:
        return Finding("data-direct", "absent", "no pair of GPU and mlx5 adapter")
    if not having:
        names = ", ".join(device.name for device in asked)
        return Finding(
            "data-direct", "absent", f"{names} has no Data Direct; the usual path is used"
        )
    return Finding("data-direct", "ok", "; ".join(having))


def _window(host: Host, gpu: Gpu) -> int:
    """NVIDIA's BAR1: the second memory window, after the registers in BAR0.

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
    """Whether each RDMA device registers dma-bufs: ibv_reg_dmabuf_mr then refuses descriptor -1 with EBADF."""
    if not host.topology.gpus:
        return Finding("rdma-dma-buf", "absent", "no NVIDIA GPU")
    lines, fixes = [], []
    for device in host.verbs.devices:
        if device.reason:
            continue  # the check uverbs says why
        if device.dma_buf_errno == 9:  # EBADF
            lines.append(f"{device.name}: registers dma-bufs")
            continue
        why = "libibverbs too old" if device.dma_buf_errno is None else "refused by the driver"
        lines.append(f"{device.name}: {why}")
        fixes.append(
            "use an adapter whose driver supports dma-buf (mlx5 on Linux 5.12), else nvidia-peermem"
        )
    return gathered("rdma-dma-buf", lines, fixes, "no RDMA device that can be opened")

"""Checks of the kernel and of its limits."""

from __future__ import annotations

from zerohop.doctor.finding import Finding, State
from zerohop.doctor.host import CAP_IPC_LOCK, Host
from zerohop.host import human_bytes
from zerohop.scale.model import Job, weigh

DMA_BUF_KERNEL = (5, 12)  # the first with ibv_reg_dmabuf_mr (commit bfe0cc6eb249)
LEAST_MEMLOCK = 1 << 20  # bytes; the queues alone need this much
DEFAULT_MAPS = 65530  # of vm.max_map_count (kernel: admin-guide/sysctl/vm.rst)
CROWDED = 0.8  # warn if a larger part of the mappings is in use
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")  # read through the kernel, a microsecond or more each


def kernel(host: Host) -> Finding:
    """Whether the kernel can register dma-bufs with an RDMA device."""
    release = host.tree.text("proc/sys/kernel/osrelease")
    if host.kernel is None:
        return Finding("kernel", "absent", f"unknown release {release!r}")
    if host.kernel >= DMA_BUF_KERNEL:
        return Finding("kernel", "ok", f"Linux {release}, supports dma-buf registration")
    fix = "for GPUDirect use Linux 5.12 or newer, or nvidia-peermem"
    return Finding("kernel", "warn", f"Linux {release}, no dma-buf registration", fix)


def memlock(host: Host) -> Finding:
    """How much host memory may be registered: RLIMIT_MEMLOCK, which does not apply with CAP_IPC_LOCK (man mlock)."""
    limit = host.ask_memlock()
    if limit is None:
        return Finding("memlock", "ok", "unlimited")
    text = human_bytes(limit)
    if host.capable(CAP_IPC_LOCK):
        return Finding("memlock", "ok", f"{text}, lifted by CAP_IPC_LOCK")
    if not host.topology.rdma:
        return Finding("memlock", "ok", f"{text}; soft0 pins nothing")
    fix = "ulimit -l unlimited (limits.conf: memlock; docker run --ulimit memlock=-1)"
    state: State = "fail" if limit < LEAST_MEMLOCK else "warn"
    peers = limit // weigh(Job(2)).pinned_nbytes
    evidence = f"{text} may be registered with an adapter, enough for {peers} Peers (zerohop scale)"
    return Finding("memlock", state, evidence, fix)


def max_map_count(host: Host) -> Finding:
    """Room for memory mappings: mmap fails with ENOMEM beyond this number (man mmap)."""
    limit = host.tree.integer("proc/sys/vm/max_map_count")
    if limit is None:
        return Finding("max-map-count", "absent", "cannot be read")
    used = len((host.tree.text("proc/self/maps") or "").splitlines())
    text = f"{limit}, this process has {used}"
    if limit < DEFAULT_MAPS or used > CROWDED * limit:
        return Finding("max-map-count", "warn", text, "sysctl vm.max_map_count=1048576")
    return Finding("max-map-count", "ok", text)


def numa_balancing(host: Host) -> Finding:
    """Whether the kernel moves pages between nodes, and causes page faults to find them.

    Bound programs should turn it off (kernel: admin-guide/sysctl/kernel.rst, numa_balancing).
    """
    on = host.tree.integer("proc/sys/kernel/numa_balancing")
    if on is None or len(host.topology.numa) < 2:
        return Finding("numa-balancing", "absent", host.topology.numa_text)
    if on:
        return Finding("numa-balancing", "warn", "on", "sysctl kernel.numa_balancing=0")
    return Finding("numa-balancing", "ok", "off")


def clocks(host: Host) -> Finding:
    """Hosts need no common time: each measures its own timeouts, and time stamps are not compared.

    The cost of a poll that reads the clock depends on the clock source (kernel: sysfs-devices-system,
    clocksource).
    """
    where = "sys/devices/system/clocksource/clocksource0"
    source = host.tree.text(f"{where}/current_clocksource")
    text = "no clock synchronisation between hosts is needed"
    if source in SLOW_CLOCKS:
        fix = "check why the kernel rejected the fast one: dmesg | grep -i clocksource; boot with tsc=reliable"
        return Finding(
            "clocks", "warn", f"{text}; reading this host's clock, {source}, is slow", fix
        )
    return Finding("clocks", "ok", text + (f"; this host uses {source}" if source else ""))

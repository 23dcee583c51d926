"""Checks of zerohop itself and of the libraries it uses."""

from __future__ import annotations

import re

from zerohop.doctor.finding import Finding
from zerohop.doctor.host import Host


def soft0(host: Host) -> Finding:
    """Whether two Endpoints of this process exchange bytes over the software HCA."""
    works, evidence = host.ask_loopback()
    if works:
        return Finding("soft0", "ok", evidence)
    fix = "check that the loopback interface is up and that no firewall blocks TCP on it"
    return Finding("soft0", "fail", evidence, fix)


def libsodium(host: Host) -> Finding:
    """Which libsodium this process has loaded; it encrypts the control channel."""
    maps = host.tree.text("proc/self/maps") or ""
    paths = sorted(set(re.findall(r"\S*/libsodium[^\s/]*", maps)))
    if paths:
        return Finding("libsodium", "ok", ", ".join(paths))
    return Finding("libsodium", "fail", "not loaded", "apt-get install libsodium23")


def gpu_kernels(host: Host) -> Finding:
    """Whether the package has GPU kernels built in; kernels of the program need none."""
    if host.ask_kernels():
        return Finding(
            "gpu_kernels", "ok", "built in: GPUs copy pages and notify, and streams can wait"
        )
    evidence = "built without nvcc: GPUs use only copy engines, and streams cannot wait"
    if not host.topology.gpus:
        return Finding("gpu_kernels", "absent", evidence)
    fix = "pip install nvidia-cuda-nvcc, set CUDA_HOME to its folder nvidia/cu13, and build zerohop again"
    return Finding("gpu_kernels", "warn", evidence, fix)


def nvtx(host: Host) -> Finding:
    """Whether Nsight Systems can show transfers."""
    if host.ask_nvtx():
        return Finding("nvtx", "ok", "transfers are ranges of the domain zerohop")
    evidence = "built without the NVTX headers, with which profilers show transfers"
    return Finding("nvtx", "absent", evidence)


def nvml(host: Host) -> Finding:
    """Whether NVLinks can be counted."""
    if len(host.topology.gpus) < 2:
        return Finding("nvml", "absent", "fewer than two GPUs")
    if host.topology.notes:
        note = "; ".join(host.topology.notes)
        return Finding("nvml", "warn", note, "pip install nvidia-ml-py, for `zerohop topo`")
    return Finding("nvml", "ok", f"{sum(host.topology.nvlinks.values())} NVLinks between GPUs")

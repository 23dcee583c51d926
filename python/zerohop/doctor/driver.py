"""Checks of the NVIDIA driver and of CUDA."""

from __future__ import annotations

import re

from zerohop.doctor.finding import Finding
from zerohop.doctor.host import Host

OLDEST_DRIVER, OLDEST_CUDA = 525, 12000  # the first with cuGetProcAddress_v2

# Errors of cuInit, and remedies (cuda.h: CUDA_ERROR_...).
CUDA_FIXES = {
    100: "check CUDA_VISIBLE_DEVICES, and give a container its GPUs (docker run --gpus all)",
    802: "start nvidia-fabricmanager, which machines with NVSwitches need",
    803: "libcuda and the kernel module are of different versions: reboot, or reload the modules",
    804: "remove the CUDA forward compatibility package from LD_LIBRARY_PATH",
    999: "load the module for unified memory: nvidia-modprobe -u",
}


def driver(host: Host) -> Finding:
    """Version and flavour of the kernel module, from /proc/driver/nvidia/version.

    dma-buf export needs the open flavour (NCCL user guide, GPU troubleshooting; mscclpp issue 657).
    """
    text = host.tree.text("proc/driver/nvidia/version")
    if text is None:
        if not host.topology.gpus:
            return Finding("driver", "absent", "no NVIDIA GPU")
        names = ", ".join(gpu.name for gpu in host.topology.gpus)
        fix = f"install NVIDIA driver {OLDEST_DRIVER} or newer, preferably with the open kernel modules"
        return Finding("driver", "fail", f"{names} without a loaded NVIDIA driver", fix)
    match = re.search(r"\s(\d+)((?:\.\d+)+)\s", text)
    if match is None:
        return Finding(
            "driver", "warn", f"unknown version: {text.splitlines()[0]}", "report this version"
        )
    version = match.group(1) + match.group(2)
    if int(match.group(1)) < OLDEST_DRIVER:
        return Finding("driver", "fail", version, f"install {OLDEST_DRIVER} or newer (CUDA 12)")
    if "Open Kernel Module" in text:
        return Finding("driver", "ok", f"{version}, open kernel modules")
    fix = "install the open kernel modules for dma-buf, or load nvidia-peermem"
    return Finding("driver", "warn", f"{version}, proprietary kernel modules: no dma-buf", fix)


def gpu_files(host: Host) -> Finding:
    """The device files that libcuda opens (NVIDIA driver README, chapter on device nodes)."""
    if not host.topology.gpus:
        return Finding("gpu-files", "absent", "no NVIDIA GPU")
    wanted = ["dev/nvidiactl", "dev/nvidia-uvm", *_minors(host)]
    missing = [f"/{path}" for path in wanted if not host.tree.exists(path)]
    closed = [f"/{path}" for path in wanted if host.tree.exists(path) and not host.usable(path)]
    if missing:
        run = "docker run --gpus all" if host.container else "nvidia-modprobe -u -c 0"
        return Finding("gpu-files", "fail", f"{', '.join(missing)} missing", f"make them: {run}")
    if closed:
        fix = "chmod 666 them, or join the group that owns them"
        return Finding("gpu-files", "fail", f"{', '.join(closed)} not permitted", fix)
    return Finding("gpu-files", "ok", ", ".join(f"/{path}" for path in wanted))


def _minors(host: Host) -> list[str]:
    """Device files of the GPUs; their numbers do not always follow the bus order."""
    found = []
    for gpu in host.topology.gpus:
        text = host.tree.text(f"proc/driver/nvidia/gpus/{gpu.pci.address}/information") or ""
        match = re.search(r"Device Minor:\s*(\d+)", text)
        if match:
            found.append(f"dev/nvidia{match.group(1)}")
    return found


def cuda(host: Host) -> Finding:
    """Whether libcuda starts and is new enough."""
    if not host.topology.gpus:
        return Finding("cuda", "absent", "no NVIDIA GPU")
    answer = host.cuda
    if answer.reason:
        fix = CUDA_FIXES.get(answer.code, "install the user part of the driver (libcuda1)")
        return Finding("cuda", "fail", answer.reason, fix)
    version = cuda_text(answer.version)
    if answer.version < OLDEST_CUDA:
        fix = f"install NVIDIA driver {OLDEST_DRIVER} or newer"
        return Finding("cuda", "fail", f"the driver supports CUDA {version}, 12.0 is needed", fix)
    names = ", ".join(device.name for device in answer.devices)
    return Finding("cuda", "ok", f"CUDA {version}: {names}")


def torch_cuda(host: Host) -> Finding:
    """Whether the driver can run PyTorch's CUDA: the driver's major version must not be older.

    Source: CUDA compatibility guide (12.x needs driver 525 or newer, 13.x 580 or newer).
    """
    built = host.ask_torch_cuda()
    if built is None or host.cuda.reason:
        return Finding("torch-cuda", "absent", "no PyTorch for CUDA, or no GPU")
    evidence = f"PyTorch for CUDA {built}, driver for CUDA {cuda_text(host.cuda.version)}"
    if int(built.split(".")[0]) > host.cuda.version // 1000:
        fix = "install a newer driver, or PyTorch for this driver's CUDA version"
        return Finding("torch-cuda", "warn", evidence, fix)
    return Finding("torch-cuda", "ok", evidence)


def cuda_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"

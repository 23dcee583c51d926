"""All checks, in the order in which a user goes through them."""

from __future__ import annotations

from collections.abc import Callable

from zerohop.doctor import driver, gpudirect, limits, pcie, rdma, sharing, software
from zerohop.doctor.finding import Finding
from zerohop.doctor.host import Host

Check = Callable[[Host], Finding]

CHECKS: tuple[Check, ...] = (
    software.soft0,
    software.libsodium,
    driver.driver,
    driver.gpu_files,
    driver.cuda,
    driver.torch_cuda,
    sharing.p2p,
    sharing.ipc,
    sharing.ptrace,
    sharing.expandable_segments,
    software.nvml,
    software.gpu_kernels,
    software.nvtx,
    rdma.libibverbs,
    rdma.providers,
    rdma.uverbs,
    rdma.transport,
    rdma.ports,
    rdma.gids,
    rdma.mtu,
    gpudirect.dma_buf,
    gpudirect.rdma_dma_buf,
    gpudirect.peermem,
    gpudirect.write_order,
    gpudirect.bar1,
    gpudirect.relaxed_ordering,
    gpudirect.data_direct,
    pcie.distance,
    pcie.iommu,
    pcie.acs,
    limits.kernel,
    limits.memlock,
    limits.max_map_count,
    limits.numa_balancing,
    limits.clocks,
)


def examine(host: Host) -> list[Finding]:
    return [check(host) for check in CHECKS]

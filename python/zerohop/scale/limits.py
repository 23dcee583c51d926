"""What a host, a process and an adapter allow, and at how many Peers of a rank that is used up."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, replace

from zerohop.doctor.host import CAP_IPC_LOCK, Host
from zerohop.scale.model import Job, completions, weigh
from zerohop.slots import MOST_RANKS

__all__ = ["UNLIMITED", "Limit", "System", "limits"]

UNLIMITED = 1 << 62

# A ConnectX-5 as ibv_devinfo shows it (openucx/ucx issue 9830); on soft0: cpp/softhca/device.hpp.
_QUEUE_PAIRS = {"mlx5": 262_144, "soft0": 1 << 20}
_COMPLETIONS = {"mlx5": 4_194_303, "soft0": 1 << 20}
_REGIONS = {"mlx5": 16_777_216, "soft0": (1 << 31) - 1}
# Connections at which a ConnectX-5 did half the reads a second of a few: their state, some 375 B of each, no longer fits
# the adapter's cache (Kalia et al., Datacenter RPCs can be General and Fast, NSDI 2019). UCX leaves RC from 256 on
# (UCX_RC_MAX_NUM_EPS, openucx/ucx pull request 3944).
_CACHED = 5000


@dataclass(frozen=True)
class System:
    """What it lets a process have. The defaults are those of most distributions, on a host of 512 GiB."""

    descriptors: int = 1024  # RLIMIT_NOFILE, as shells have it
    pinned_nbytes: int = 8 << 20  # RLIMIT_MEMLOCK, from Linux 5.16 on
    maps: int = 65_530  # vm.max_map_count
    host_nbytes: int = 512 << 30

    @classmethod
    def here(cls) -> System:
        """As this process has it now. CAP_IPC_LOCK lifts the limit of pinned memory."""
        host = Host()
        pinned = host.ask_memlock()
        lifted = pinned is None or host.capable(CAP_IPC_LOCK)
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return cls(
            descriptors=UNLIMITED if descriptors == resource.RLIM_INFINITY else descriptors,
            pinned_nbytes=UNLIMITED if lifted else pinned or 0,
            maps=host.tree.integer("proc/sys/vm/max_map_count") or UNLIMITED,
            host_nbytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"),
        )


@dataclass(frozen=True)
class Limit:
    """peers: of a rank, as many as fit. needed: those of the job. breaks: whether more fail, or are only slower."""

    what: str
    most: int
    peers: int
    needed: int
    breaks: bool
    remedy: str

    @property
    def holds(self) -> bool:
        return self.needed <= self.peers


def limits(job: Job, system: System | None = None) -> list[Limit]:
    """Those that the job meets with the fewest Peers first."""
    return sorted(_limits(job, system or System()), key=lambda limit: limit.peers)


def _limits(job: Job, system: System) -> Iterator[Limit]:
    def fit(field: str, most: int, ranks: int = 1) -> int:
        """Peers of each of so many ranks, from what one Peer adds."""
        if most >= UNLIMITED:
            return UNLIMITED
        none, one = (getattr(weigh(replace(job, ranks=2, peers=n)), field) for n in (0, 1))
        return max(0, most // ranks - none) // (one - none) if one > none else UNLIMITED

    def limit(what: str, most: int, peers: int, remedy: str, *, breaks: bool = True) -> Limit:
        return Limit(what, most, peers, job.degree, breaks, remedy)

    each = f"each Peer takes {weigh(replace(job, ranks=2)).pinned_nbytes} B"
    of_adapter = (
        job.per_host * job.rails / job.adapters
    )  # queue pairs of it that one Peer each takes
    yield limit(
        "descriptors (RLIMIT_NOFILE)",
        system.descriptors,
        fit("descriptors", system.descriptors),
        "ulimit -n 1048576, before the job starts",
    )
    if job.on == "mlx5":
        yield limit(
            "pinned memory (RLIMIT_MEMLOCK)",
            system.pinned_nbytes,
            fit("pinned_nbytes", system.pinned_nbytes),
            f"ulimit -l unlimited; {each}: fewer message_slots, message_bytes, send_depth",
        )
        yield limit(
            "queue pairs in an adapter's cache",
            _CACHED,
            int(_CACHED / of_adapter),
            "more adapters, each for the ranks near it; fewer Peers: reach others by a rank of their host",
            breaks=False,
        )
    yield limit(
        "memory mappings (vm.max_map_count)",
        system.maps,
        fit("maps", system.maps),
        "sysctl vm.max_map_count=1048576",
    )
    yield limit(
        f"RAM of a host, for {job.per_host} ranks",
        system.host_nbytes,
        fit("resident_nbytes", system.host_nbytes, job.per_host),
        "fewer message_slots, message_bytes, send_depth",
    )
    yield limit(
        "completions of a device (max_cqe)",
        _COMPLETIONS[job.on],
        _COMPLETIONS[job.on] // completions(job),
        "a smaller send_depth",
    )
    yield limit(
        "queue pairs of a device (max_qp)",
        _QUEUE_PAIRS[job.on],
        int(_QUEUE_PAIRS[job.on] / of_adapter),
        "more adapters, fewer rails",
    )
    yield limit(
        "memory regions of a device (max_mr)",
        _REGIONS[job.on],
        fit("memory_regions", _REGIONS[job.on] * job.adapters, job.per_host),
        "fewer registered arrays: larger ones, sliced",
    )
    yield limit(
        "heartbeats by one thread, its time",
        1,
        int(1 / weigh(replace(job, ranks=2)).idle_cpu),
        "fewer Peers: reach others by a rank of their host",
    )
    yield Limit(
        "ranks that collectives serve",
        MOST_RANKS,
        MOST_RANKS - 1,
        job.ranks - 1,
        breaks=True,
        remedy="several Worlds; segments, and collectives of NCCL or MPI",
    )

"""The limits of a host, a process and an adapter, and the number of Peers of a rank that reaches each."""

from __future__ import annotations

import os
import resource
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from zerohop._world.notifications import MOST_RANKS
from zerohop.doctor.host import CAP_IPC_LOCK, Host
from zerohop.scale.model import Job, Weight, weigh

UNLIMITED = 1 << 62
_MANY = 1 << 40  # Peers: stands for no limit

# A ConnectX-5 in ibv_devinfo (openucx/ucx issue 9830); soft0: cpp/softhca/device.hpp.
_QUEUE_PAIRS = {"mlx5": 262_144, "soft0": 1 << 20}
_COMPLETIONS = {"mlx5": 4_194_303, "soft0": 1 << 20}
_REGIONS = {"mlx5": 16_777_216, "soft0": (1 << 31) - 1}
# Connections at which a ConnectX-5 did half the reads a second of a few: their state, about 375 B each, no longer fits
# into the adapter's cache (Kalia et al., Datacenter RPCs can be General and Fast, NSDI 2019). UCX stops using RC at 256
# (UCX_RC_MAX_NUM_EPS, openucx/ucx pull request 3944).
_CACHED = 5000


@dataclass(frozen=True)
class System:
    """The limits of a process. The defaults are those of most distributions, on a host with 512 GiB."""

    descriptors: int = 1024  # RLIMIT_NOFILE, as in shells
    pinned_nbytes: int = 8 << 20  # RLIMIT_MEMLOCK, since Linux 5.16
    maps: int = 65_530  # vm.max_map_count
    host_nbytes: int = 512 << 30

    @classmethod
    def here(cls) -> System:
        """The limits of this process now. With CAP_IPC_LOCK pinned memory has no limit."""
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
    """peers: the most Peers of a rank. needed: those of the job. breaks: whether more fail, or are only slower."""

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
    """The limits, those reached with the fewest Peers first."""
    return sorted(_limits(job, system or System()), key=lambda limit: limit.peers)


def _limits(job: Job, system: System) -> Iterator[Limit]:
    def limit(
        what: str,
        most: int,
        of: Callable[[Weight], float],
        remedy: str,
        *,
        shared: tuple[int, int] = (1, 1),
        breaks: bool = True,
    ) -> Limit:
        """shared: the number of ranks that share the limit, and the number of resources with it."""
        sharers, owners = shared

        def is_too_much(peers: int) -> bool:
            return of(weigh(replace(job, ranks=peers + 1, peers=None))) * sharers > most * owners

        first = bisect_left(range(_MANY), True, key=is_too_much)
        fits = UNLIMITED if most >= UNLIMITED or first == _MANY else max(0, first - 1)
        return Limit(what, most, fits, job.degree, breaks, remedy)

    each = f"each Peer takes {weigh(replace(job, ranks=2)).pinned_nbytes} B"
    of_adapter = (job.per_host, job.adapters)
    yield limit(
        "descriptors (RLIMIT_NOFILE)",
        system.descriptors,
        lambda rank: rank.descriptors,
        "ulimit -n 1048576, before the job starts",
    )
    if job.on == "mlx5":
        yield limit(
            "pinned memory (RLIMIT_MEMLOCK)",
            system.pinned_nbytes,
            lambda rank: rank.pinned_nbytes,
            f"ulimit -l unlimited; {each}: a smaller send_depth",
        )
        yield limit(
            "queue pairs in an adapter's cache",
            _CACHED,
            lambda rank: rank.queue_pairs,
            "more adapters, each for the ranks near it; fewer Peers: reach others through a rank of their host",
            shared=of_adapter,
            breaks=False,
        )
    yield limit(
        "memory mappings (vm.max_map_count)",
        system.maps,
        lambda rank: rank.maps,
        "sysctl vm.max_map_count=1048576",
    )
    yield limit(
        f"RAM of a host, for {job.per_host} ranks",
        system.host_nbytes,
        lambda rank: rank.resident_nbytes,
        "a smaller send_depth",
        shared=(job.per_host, 1),
    )
    yield limit(
        "completions of a device (max_cqe)",
        _COMPLETIONS[job.on],
        lambda rank: rank.completions,
        "a smaller send_depth",
    )
    yield limit(
        "queue pairs of a device (max_qp)",
        _QUEUE_PAIRS[job.on],
        lambda rank: rank.queue_pairs,
        "more adapters, fewer rails",
        shared=of_adapter,
    )
    yield limit(
        "memory regions of a device (max_mr)",
        _REGIONS[job.on],
        lambda rank: rank.memory_regions,
        "fewer registered arrays: use slices of larger ones",
        shared=of_adapter,
    )
    yield limit(
        "heartbeats by one thread, its time",
        1,
        lambda rank: rank.idle_cpu,
        "fewer Peers: reach others through a rank of their host",
    )
    yield Limit(
        "ranks that collectives serve",
        MOST_RANKS,
        MOST_RANKS - 1,
        job.ranks - 1,
        breaks=True,
        remedy="several Worlds; segments, and collectives of NCCL or MPI",
    )

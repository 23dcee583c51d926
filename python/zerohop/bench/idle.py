"""What an idle Peer weighs: the growth of one process's resident memory as Peers are added to it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import zerohop as zh
from zerohop.local import Link

FILES_PER_PEER = 8  # descriptors: control and data connections, event channels, and room to spare


def hold_peers(link: Link, device: str | None, counts: tuple[int, ...]) -> list[tuple[int, float]]:
    """On rank 0: (how many Peers its Endpoint has, bytes of resident memory that each added).

    The other ends live in rank 1, one Endpoint each, since two Endpoints share one Peer.
    """
    allow_files(FILES_PER_PEER * max(counts))
    remote: list[zh.Endpoint] = []
    held: list[zh.Peer] = []
    weights = []
    with zh.Endpoint(device) as endpoint:
        before = 0
        for count in (1, *counts):  # the first Peer also makes what all of them share
            if link.rank == 1:
                remote += [zh.Endpoint(device) for _ in range(count - len(remote))]
            addresses = link.exchange([there.address for there in remote[len(held) :]])[1]
            if link.rank == 0:
                held += [endpoint.connect(address) for address in addresses]
                if count == 1:
                    before = resident_nbytes()
                else:
                    weights.append((count, (resident_nbytes() - before) / (count - 1)))
            else:
                held += [there.accept() for there in remote[len(held) :]]
            link.report(count)
            link.exchange(None)
        if link.rank == 0 and not all(peer.alive for peer in held):
            raise RuntimeError(f"{sum(not peer.alive for peer in held)} of {len(held)} Peers died")
        link.exchange(None)
    for there in remote:
        there.close()
    return weights


def allow_files(count: int) -> None:
    """Raises the soft limit of open files to `count` if the hard limit lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def resident_nbytes() -> int:
    """Field 2 of /proc/self/statm, in pages (man 5 proc)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")

"""The memory of an idle Peer: the growth of a process's resident memory as Peers are added."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import zerohop as zh
from zerohop.bench.plan import FigureFailed, Order
from zerohop.bench.workers import Player
from zerohop.local import Link

FILES_PER_PEER = 8  # descriptors: control and data connections, event channels, and room to spare


class Idle(Player):
    """One Endpoint in rank 0, which gets more Peers with each order.

    The other ends live in rank 1, one Endpoint each, because two Endpoints share one Peer.
    """

    def __init__(self, link: Link, device: str | None) -> None:
        self._link = link
        self._device = device
        self._endpoint = zh.Endpoint(device)
        self._remote: list[zh.Endpoint] = []
        self._held: list[zh.Peer] = []
        self._before = 0  # bytes, with one Peer, which also creates what all of them share

    def facts(self) -> dict[str, str]:
        return {"device": self._endpoint.device, "route": "host"}

    def perform(self, order: Order) -> dict[str, float]:
        """Bytes of resident memory per Peer beyond the first, with `times` Peers in total."""
        allow_files(FILES_PER_PEER * order.times)
        if not self._held:
            self._grow(1)
            self._before = resident_nbytes()
        self._grow(order.times)
        weight = (resident_nbytes() - self._before) / (order.times - 1)
        self._link.exchange(None)
        dead = sum(not peer.alive for peer in self._held)
        if dead:
            raise FigureFailed(f"{dead} of {len(self._held)} Peers died")
        return {"rss_per_peer": weight} if self._link.rank == 0 else {}

    def _grow(self, count: int) -> None:
        if self._link.rank == 1:
            more = count - len(self._remote)
            self._remote += [zh.Endpoint(self._device) for _ in range(more)]
        addresses = self._link.exchange([e.address for e in self._remote[len(self._held) :]])[1]
        if self._link.rank == 0:
            self._held += [self._endpoint.connect(address) for address in addresses]
        else:
            self._held += [there.accept() for there in self._remote[len(self._held) :]]
        self._link.exchange(None)

    def close(self) -> None:
        for endpoint in (self._endpoint, *self._remote):
            endpoint.close()


def allow_files(count: int) -> None:
    """Raises the soft limit of open files to `count` if the hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def resident_nbytes() -> int:
    """Field 2 of /proc/self/statm, in pages (man 5 proc)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")

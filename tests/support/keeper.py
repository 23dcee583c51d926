"""A partner that keeps memory for the test: makes it, shows it, revokes it, on request."""

from typing import Any

import numpy as np
import zerohop as zh

from support.arrays import Block, array, block
from support.link import START_TIMEOUT, Link


def keep(ep: zh.Endpoint, peer: zh.Peer | None, link: Link) -> None:
    """The partner function: obeys a Keeper until it says "end"."""
    kept: list[Any] = []
    while True:
        order, *values = link.recv(120)  # a test may be long with strangers meanwhile
        if order == "end":
            return
        if order == "block":
            kept.append(block(ep, *values))
            link.send(kept[-1].memory.remote)
        elif order == "array":
            kept.append(array(ep, *values))
            link.send(kept[-1][0].remote)
        elif order == "show":
            link.send(_show(kept[values[0]]))
        elif order == "revoke":
            for memory in (_memory(kept[values[0]]), getattr(kept[values[0]], "owner", None)):
                if isinstance(memory, zh.Memory):  # of ep.empty, whose slices are one registration
                    memory.close()
            link.send("closed")
        elif order == "share":
            ep.share(values[0], _memory(kept[values[1]]))
            link.send("shared")
        elif order == "unshare":
            ep.unshare(values[0])
            link.send("unshared")
        elif order == "peer":
            link.send((peer.alive, peer.id))


def _memory(item: Any) -> zh.Memory:
    return item.memory if isinstance(item, Block) else item[0]


def _show(item: Any) -> np.ndarray:
    if isinstance(item, Block):
        item.check_guards()
        return item.bytes.copy()
    return item[1].copy()


class Kept:
    """One piece of memory at the keeper's."""

    def __init__(self, link: Link, number: int, remote: zh.RemoteMemory) -> None:
        self._link, self._number, self.remote = link, number, remote

    def show(self) -> np.ndarray:
        """A copy of what is in it; the keeper has looked that the guards are untouched."""
        self._link.send(("show", self._number))
        return self._link.recv()

    def revoke(self) -> None:
        self._link.send(("revoke", self._number))
        assert self._link.recv() == "closed"

    def share(self, name: str) -> None:
        self._link.send(("share", name, self._number))
        assert self._link.recv() == "shared"


class Keeper:
    """The test's side: gives orders over the link."""

    def __init__(self, link: Link) -> None:
        self._link, self._count = link, 0

    def block(self, kind: str, nbytes: int, offset: int = 0) -> Kept:
        """Poisoned bytes with guards around them (support.arrays.block)."""
        return self._make("block", kind, nbytes, offset)

    def array(self, kind: str, values: np.ndarray) -> Kept:
        """An array with these values (support.arrays.array)."""
        return self._make("array", kind, values)

    def _make(self, *order: Any) -> Kept:
        self._link.send(order)
        self._count += 1
        return Kept(self._link, self._count - 1, self._link.recv(START_TIMEOUT))

    def unshare(self, name: str) -> None:
        self._link.send(("unshare", name))
        assert self._link.recv() == "unshared"

    def peer(self) -> tuple[bool, str]:
        """Whether the keeper's Peer is alive, and its id."""
        self._link.send(("peer",))
        return self._link.recv()

    def end(self) -> None:
        self._link.send(("end",))

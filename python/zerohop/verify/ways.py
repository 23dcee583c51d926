"""How a pattern gets to the other end's memory and back, on each route."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from zerohop._core import Memory, Peer, RemoteMemory, Route, wire_text
from zerohop.endpoint import Endpoint
from zerohop.errors import Error, IntegrityError, RouteUnavailable
from zerohop.verify.patterns import Bytes
from zerohop.verify.target import NAMES, NO_GPU

ROUTES = tuple(NAMES)
PAGE = 4096  # bytes; the near end of a transfer begins anywhere in a page


class Way:
    """From host memory here into `far` and back, only on `route`.

    memory: the route whose memory it uses; default: its own. used: the Route that bytes have taken.
    """

    used: Route

    def __init__(
        self, endpoint: Endpoint, peer: Peer, route: str, memory: str | None = None
    ) -> None:
        self.route = route
        self._memory = memory or route
        self._peer = peer
        self.far = self._take(peer)
        self.nbytes = self.far.nbytes
        self._near: Memory = endpoint.empty(self.nbytes + PAGE)
        self._back: Memory = endpoint.empty(self.nbytes + PAGE)

    def _take(self, peer: Peer) -> RemoteMemory:
        try:
            return peer[NAMES[self._memory]]
        except KeyError:
            raise LookupError(f"the other end has no such memory{self._why(peer)}") from None

    def _why(self, peer: Peer) -> str:
        with suppress(KeyError, Error):
            said = peer[NO_GPU]
            reason = np.zeros(said.nbytes, np.uint8)
            peer.read(said, reason).wait()
            return f": {wire_text(reason.tobytes())}"
        return ""

    def put(self, content: Bytes, offset: int, shift: int) -> None:
        """Writes it to `offset` there, from `shift` bytes after the start of a page here."""
        near = self._near[shift : shift + content.size]
        np.asarray(near)[:] = content
        there = self.far[offset : offset + content.size]
        tried = self._peer.write(near, there, require=self.route)
        tried.wait()
        self.used = tried.route

    def get(self, offset: int, nbytes: int, shift: int) -> Bytes:
        """Reads the bytes at `offset` there."""
        back = self._back[shift : shift + nbytes]
        np.asarray(back).fill(0xA5)
        self._peer.read(self.far[offset : offset + nbytes], back, require=self.route).wait()
        return np.array(back)


class GpuWay(Way):
    """Into the far GPU's memory, from there into the near GPU's and back on `route`, then to the host."""

    def __init__(
        self, endpoint: Endpoint, peer: Peer, route: str, memory: str | None = None
    ) -> None:
        super().__init__(endpoint, peer, route, memory)
        registration = "staged" if self._memory == "staged" else "auto"
        try:
            self._gpu: Memory = endpoint.empty(
                self.nbytes, device="cuda:0", registration=registration
            )
        except Error as error:
            raise LookupError(f"this side has no GPU memory: {error}") from None

    def _take(self, peer: Peer) -> RemoteMemory:
        """The first half is under test; bytes return through the second one."""
        both = super()._take(peer)
        half = both.nbytes // 2
        self._second = both[half:]
        return both[:half]

    def put(self, content: Bytes, offset: int, shift: int) -> None:
        near = self._near[shift : shift + content.size]
        np.asarray(near)[:] = content
        self._peer.write(near, self.far[offset : offset + content.size]).wait()

    def get(self, offset: int, nbytes: int, shift: int) -> Bytes:
        first, gpu = self.far[offset : offset + nbytes], self._gpu[:nbytes]
        second, back = self._second[:nbytes], self._back[shift : shift + nbytes]
        np.asarray(back).fill(0xA5)
        tried = self._peer.read(first, gpu, require=self.route)
        tried.wait()
        self.used = tried.route
        self._peer.write(gpu, second, require=self.route).wait()
        self._peer.read(second, back).wait()
        return np.array(back)


def open_way(endpoint: Endpoint, peer: Peer, route: str) -> Way | str:
    """The way, or why there is none."""
    kind = Way if route in ("host", "p2p") else GpuWay
    try:
        way = kind(endpoint, peer, route)
        with suppress(IntegrityError):  # the route exists; its faults are found later
            way.put(np.zeros(1, np.uint8), 0, 0)
            way.get(0, 1, 0)
        return way
    except (RouteUnavailable, LookupError) as error:
        return str(error.args[0])

"""One of two processes in networks of their own: run as `python -m support.apart FD FD FD PLACE` by support.network.

Both have memory for the other (support.keeper) over pipes that no network carries.
"""

import errno
import sys
import time
from multiprocessing.connection import Connection

import numpy as np
import zerohop as zh

from support.attempt import LOST_WITHIN, Attempt
from support.keeper import Keeper, keep
from support.link import DEFAULT_TIMEOUT, Link, until
from support.network import host
from support.operations import OPERATIONS, Stage
from support.spawned import obey

_COUNT = 1000  # elements that are compared


class End:
    """asks, serves: over which this end has memory made at the other, and makes it."""

    def __init__(self, place: int, asks: Link, serves: Link) -> None:
        self.keeper, self._serves, self._place = Keeper(asks), serves, place
        self._pending: dict[str, Attempt] = {}

    def here(self) -> None:
        """It runs: now it can be given its network."""

    def open(self) -> None:
        device = f"soft0@{host('data', self._place)}"
        self.ep = zh.Endpoint(device, host=host("control", self._place), timeout=30.0)

    def address(self) -> bytes:
        return self.ep.address

    def dial(self, address: bytes) -> None:
        """Behind a cut the kernel says for a while that there is no way to the host."""
        end = time.monotonic() + DEFAULT_TIMEOUT
        while True:
            try:
                self.peer = self.ep.connect(address, timeout=DEFAULT_TIMEOUT)
                return
            except zh.PeerLost as error:
                if error.code != errno.EHOSTUNREACH or time.monotonic() > end:
                    raise

    def accept(self) -> None:
        self.peer = self.ep.accept(timeout=DEFAULT_TIMEOUT)

    def serve(self) -> None:
        self._keeper = Attempt(keep, self.ep, None, self._serves)

    def prepare(self) -> None:
        self.at = Stage(self)  # type: ignore[arg-type]  # it has what a Session has

    def pend(self, names: list[str]) -> None:
        self._pending = {name: Attempt(OPERATIONS[name], self.at) for name in names}

    def flow(self) -> None:
        """From now on, until it fails."""
        self.rounds = 0
        self._pending = {"flow": Attempt(self._flow)}
        self.goes_on()

    def goes_on(self) -> None:
        rounds = self.rounds + 3
        until(lambda: self.rounds >= rounds, "three rounds are done", LOST_WITHIN)

    def _flow(self) -> None:
        while True:
            OPERATIONS["write and notify"](self.at)
            self.rounds += 1

    def ends(self) -> dict[str, tuple[str, float]]:
        """How the calls ended that were pending: "done", or an error's name; and when (time.monotonic(), everywhere the same)."""
        return {name: (_ending(each), each.ended_at) for name, each in self._pending.items()}

    def is_alive(self) -> bool:
        return self.peer.alive

    def check(self) -> None:
        """A new Peer serves, there and back."""
        at, values = self.at, np.arange(_COUNT).astype(np.uint8)
        self.peer.write(values, at.far[:_COUNT]).wait()
        found = np.zeros(_COUNT, np.uint8)
        self.peer.read(at.far[:_COUNT], found).wait()
        np.testing.assert_array_equal(found, values)


def _ending(attempt: Attempt) -> str:
    try:
        attempt.value()
    except zh.Error as error:
        return type(error).__name__
    return "done"


def main() -> None:
    *descriptors, place = map(int, sys.argv[1:])
    control, asks, serves = map(Connection, descriptors)
    end = End(place, Link(asks), Link(serves))
    obey(control, lambda name, *given: getattr(end, name)(*given))


if __name__ == "__main__":
    main()

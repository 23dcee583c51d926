"""The far end of tests/contract/test_model.py: a process that holds memory, and does and tells what it is asked.

Run as `python -m support.model_far FD`; orders and answers go over that connection.
"""

import sys
from multiprocessing.connection import Connection

import numpy as np
import zerohop as zh

from support.link import until
from support.patience import patient
from support.spawned import obey

MARGIN = 4096  # bytes on both sides that nobody is given
NBYTES = 256 << 10
COUNTERS = 4  # of 8 bytes, the last one for who only wants to know whether the device works
GUARD = 0xA5
SLOTS = 16
# Short ack timeouts, 1 ms: what is lost is missed soon.
OPTIONS = {"timeout": patient(10.0), "ack_timeout": 8, "min_rnr_timer": 1, "spin": 0.0}


class Far:
    """What the process has. The methods are the orders."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._ep = zh.Endpoint("soft0", p2p=1, name="far", **OPTIONS)
        self._peer: zh.Peer | None = None
        self._recv: tuple[zh.Transfer, np.ndarray] | None = None

    def begin(self, mapped: bool) -> tuple[bytes, bytes, bytes]:
        """Fresh memory, no notifications, no faults; the address, and what may be written."""
        self.faults(None)
        nbytes = MARGIN + NBYTES + MARGIN
        memory = self._ep.empty(nbytes, "uint8") if mapped else None
        self._all = np.full(nbytes, GUARD, np.uint8) if memory is None else np.asarray(memory)
        self._all[:] = GUARD
        self._memory = self._ep.register(self._all) if memory is None else memory
        self._all[MARGIN:-MARGIN] = 0
        self._counters = np.zeros(COUNTERS, np.int64)
        self._registered = self._ep.register(self._counters)
        for slot in range(SLOTS):
            self._ep.reset_notify(slot)
        given = self._memory[MARGIN:-MARGIN].remote
        return self._ep.address, given.to_bytes(), self._registered.remote.to_bytes()

    def accept(self) -> None:
        self._peer = self._ep.accept(patient(10.0))

    def show(self) -> tuple[bytes, list[int]]:
        return self._all.tobytes(), self._counters.tolist()

    def watch(self, slot: int, begin: int, end: int) -> tuple[int, bytes]:
        """The slot's value and, at that moment, these bytes; 0 if the other side tires of it first."""
        while True:
            tired = self._control.poll()
            try:
                value = self._ep.wait_notify(slot, timeout=0.0 if tired else 0.002)
            except (zh.TransferTimeout, zh.PeerLost):
                value = 0
            if value or tired:
                return value, self._all[MARGIN + begin : MARGIN + end].tobytes()

    def tired(self) -> None:
        """Ends watch()."""

    def take(self, slot: int) -> int:
        return self._ep.reset_notify(slot)

    def await_message(self, nbytes: int, tag: int) -> bool:
        assert self._peer is not None
        array = np.zeros(nbytes, np.uint8)
        try:
            self._recv = self._peer.recv(array, tag=tag), array
        except zh.Error:
            self._recv = None
        return self._recv is not None

    def message(self) -> bytes | None:
        """What came; None: an error."""
        assert self._recv is not None
        try:
            self._recv[0].wait()
        except zh.Error:
            return None
        return self._recv[1].tobytes()

    def send(self, data: bytes, tag: int) -> str:
        """The name of the error, or nothing."""
        assert self._peer is not None
        try:
            self._peer.send(np.frombuffer(data, np.uint8), tag=tag).wait()
        except zh.Error as error:
            return type(error).__name__
        return ""

    def faults(self, faults: str | None) -> dict[str, int]:
        self._ep.set_faults(faults)
        return dict(self._ep.stats().get("faults", {}))

    def quiet(self) -> None:
        """Returns when nobody of earlier connections is there any more."""
        until(lambda: len(self._ep.peers) <= 1, "earlier connections end")


def main() -> None:
    control = Connection(int(sys.argv[1]))
    far = Far(control)
    obey(control, lambda name, *given: getattr(far, name)(*given))


if __name__ == "__main__":
    main()

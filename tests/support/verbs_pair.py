"""Two ends of a verbs connection in one process."""

import time
from dataclasses import dataclass

import numpy as np
from zerohop import verbs

from support.link import until
from support.patience import patient

DEADLINE = patient(5.0)  # seconds; soft0 over loopback answers in microseconds
NBYTES = 4096


@dataclass
class Side:
    """One end of a connection, with an array that its peer may use in every way."""

    pd: verbs.ProtectionDomain
    cq: verbs.CompletionQueue
    qp: verbs.QueuePair
    array: np.ndarray
    mr: verbs.MemoryRegion


Pair = tuple[Side, Side]


def make_side(device: verbs.Device, **options: int) -> Side:
    """One end with a fresh queue pair in RESET."""
    pd = device.pd()
    cq = verbs.CompletionQueue(device, 64)
    array = np.zeros(NBYTES, np.uint8)
    return Side(pd, cq, verbs.QueuePair(pd, cq, **options), array, pd.register(array))


def connect(here: Side, there: Side) -> Pair:
    """Bring both ends to RTS; the first one's array then holds 0, 1, 2, ..."""
    here.qp.connect(there.qp.address())
    there.qp.connect(here.qp.address())
    here.array[:] = np.arange(NBYTES) % 251
    return here, there


def take(cq: verbs.CompletionQueue, count: int = 1) -> list[verbs.WC]:
    """The next count completions of the queue, slept for on its event channel."""
    taken: list[verbs.WC] = []
    end = time.monotonic() + DEADLINE
    while len(taken) < count:
        cq.arm()
        taken += cq.poll(count - len(taken))
        if len(taken) < count:
            assert cq.wait(max(end - time.monotonic(), 0)), f"only {taken} of {count} came"
    return taken


def take_error(side: Side) -> verbs.WC:
    """The completion of a request that failed and took its queue pair to ERR."""
    [wc] = take(side.cq)
    assert not wc.ok
    assert wc.opcode is None
    assert wc.help in repr(wc)
    until(lambda: side.qp.state == "ERR", "the queue pair is in error")  # Soft-RoCE: a little later
    return wc

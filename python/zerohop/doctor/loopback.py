"""A small transfer on soft0 between two endpoints of this process: the least that must work."""

from __future__ import annotations

import time

import numpy as np

NBYTES = 64 << 10
TIMEOUT_S = 5.0


def loopback() -> tuple[bool, str]:
    """Whether bytes and a notification arrive, and what happened; takes seconds at most."""
    from zerohop.endpoint import Endpoint
    from zerohop.errors import Error

    begin = time.perf_counter()
    sent = np.random.default_rng(1).integers(0, 256, NBYTES, dtype="uint8")
    try:
        with (
            Endpoint("soft0", timeout=TIMEOUT_S, p2p=0) as here,
            Endpoint("soft0", timeout=TIMEOUT_S, p2p=0) as there,
        ):
            inbox = there.empty(NBYTES)
            here.connect(there.address).write(
                here.register(sent), inbox.remote, notify=(1, 1)
            ).wait()
            there.wait_notify(1)
            arrived = bool(np.array_equal(np.asarray(inbox), sent))
    except (Error, OSError, ValueError) as error:
        return False, str(error)
    if not arrived:
        return False, f"other bytes arrived than the {NBYTES} that were written"
    return True, f"64 KiB and a notification arrived; {time.perf_counter() - begin:.2f} s in all"

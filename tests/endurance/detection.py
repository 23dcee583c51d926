"""How soon every operation learns that its peer is dead or stands still."""

import os
import signal
import statistics
import time
from collections.abc import Iterator
from typing import Any

import zerohop as zh
from support.attempt import LOST_WITHIN, Attempt
from support.keeper import keep
from support.operations import OPERATIONS, Stage, served_by_itself
from support.partner import Partners
from support.session import Remote

FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def rows(partners: Partners, repeats: dict[str, int]) -> Iterator[dict[str, Any]]:
    """repeats: how often, by fault. Seconds from the fault to PeerLost, of each operation by each route."""
    for p2p in (False, True):
        os.environ["ZEROHOP_P2P"] = str(int(p2p))
        remote = Remote(partners, "process", "soft0")
        for fault, number in FAULTS.items():
            for name in OPERATIONS:
                if served_by_itself(remote, name):  # it ends well: this process moves it alone
                    continue
                took = [_seconds(remote, name, number) for _ in range(repeats[fault])]
                yield {
                    "what": "detection",
                    "route": "p2p" if p2p else "soft0",
                    "fault": fault,
                    "operation": name,
                    "times": len(took),
                    "median_s": statistics.median(took),
                    "worst_s": max(took),
                    "holds": max(took) < LOST_WITHIN,
                }


def _seconds(remote: Remote, name: str, number: int) -> float:
    with remote(keep, timeout=30.0) as session:
        at = Stage(session)
        stopped = time.monotonic()
        session.signal(signal.SIGSTOP)  # so that the operation cannot end before
        pending = Attempt(OPERATIONS[name], at)
        if number != signal.SIGSTOP:
            pending.stays_pending(0.05)
            stopped = time.monotonic()
            session.signal(number)
        pending.failure(zh.PeerLost, timeout=2 * LOST_WITHIN)
        return pending.ended_at - stopped

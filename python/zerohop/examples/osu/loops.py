"""What is timed: so many turns of either test, by both ranks; rank 0 begins."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerohop.examples.osu.pair import Pair

__all__ = ["LOOPS"]


def latency(pair: Pair, nbytes: int, times: int) -> float:
    """Seconds in which a write has gone there and another come back so many times."""
    ((source, there),) = pair.ends(nbytes)
    peer, begins = pair.peer, pair.world.rank == 0
    begin = time.perf_counter()
    for _ in range(times):
        note = pair.next_note()
        if not begins:
            pair.take(note)
        written = peer.write(source, there, notify=note)
        if begins:
            pair.take(note)
        written.wait()
    return time.perf_counter() - begin


def bandwidth(pair: Pair, nbytes: int, times: int) -> float:
    """Seconds in which so many windows of writes have gone from rank 0 to rank 1, each acknowledged."""
    *ends, (source, there) = pair.ends(nbytes)
    peer, begins = pair.peer, pair.world.rank == 0
    begin = time.perf_counter()
    for _ in range(times):
        note = pair.next_note()
        if not begins:
            pair.take(note)
            pair.acknowledge(note).wait()
            continue
        window = [peer.write(here, far) for here, far in ends]
        window.append(peer.write(source, there, notify=note))
        pair.take(note)
        for written in window:
            written.wait()
    return time.perf_counter() - begin


LOOPS = {"latency": latency, "bw": bandwidth}

"""Inside a guest: writes of 8 B beside perftest on one Soft-RoCE device, in turns. Host side: tests/vm/bench.

Like for like: two processes that both poll the last byte of what the other one writes. perftest and the Endpoint
take the completion of a write while the ball flies, the bare queue pair once the answer has come.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from zerohop import verbs
from zerohop.bench.pair import Pair
from zerohop.bench.peers.perftest import Perftest
from zerohop.bench.placement import FREE
from zerohop.bench.plan import Order
from zerohop.bench.verbs import PING_PONG, End
from zerohop.bench.workers import Workers

DEVICE = "rxe0"
NBYTES, TIMES = 8, 1000
# An unbound worker of the kernel runs on either processor, as the scheduler finds: each side's median is then
# one of two, 26 or 50 us. With this it runs where the work was queued, for perftest as for us.
SCOPE = Path("/sys/module/workqueue/parameters/default_affinity_scope")  # since Linux 6.6


def workers(make: Callable[..., Any]) -> Workers:
    """Two connected processes, stopped until their turn."""
    made = Workers("zerohop", 2, make, DEVICE, 1 << 20)
    made.start(FREE)
    made.ask("facts")
    made.pause()
    return made


def p50(pair: Workers, test: str) -> float:
    pair.resume()
    seconds: float = median(pair.ask(Order(test, "cpp", NBYTES, TIMES))[0])
    pair.pause()
    return seconds


def main(turns: int) -> None:
    if SCOPE.exists():
        SCOPE.write_text("cpu")
    perftest = Perftest(verbs.Device(DEVICE))
    pairs = {"queue pair": (workers(End), PING_PONG), "Endpoint": (workers(Pair), "write_latency")}
    found: dict[str, list[float]] = {name: [] for name in ("ib_write_lat", *pairs)}
    for turn in range(turns + 1):  # the first warms up
        taken = {name: p50(*pair) for name, pair in pairs.items()}
        taken["ib_write_lat"] = perftest.run(FREE, "ib_write_lat", NBYTES, TIMES)[2] * 1e-6
        for name, seconds in taken.items() if turn else ():
            found[name].append(seconds)
    for pair, _ in pairs.values():
        pair.resume()
        pair.finish()
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))

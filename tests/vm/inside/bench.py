"""Inside a guest: zerohop beside perftest on one Soft-RoCE device, in turns. Host side: tests/vm/bench.

Like for like: as many writes under way, each with its completion; one queue pair; the same path MTU; a
latency without notification, whose last byte the other side polls. Ours with one stands beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zerohop import verbs
from zerohop.bench.pair import work
from zerohop.bench.peers.perftest import Perftest, version
from zerohop.bench.plan import KIB, MIB, Order
from zerohop.bench.rows import Row, header, medians, write_json
from zerohop.local import Ranks
from zerohop.observe.stats import percentiles

DEVICE = "rxe0"
SUITE = "perftest"
SIZES = {64 * KIB: 1000, MIB: 100}  # bytes of a write: writes of one measurement
LATENCY_NBYTES, PING_PONGS = 8, 1000
ROUNDS = 3  # each figure is the median of so many
DRIVERS = ("cpp", "python")


def row(test: str, driver: str, nbytes: int, impl: str, metric: str, value: float) -> Row:
    return Row(
        suite=SUITE, test=test, route="host", device=DEVICE, memory="host", driver=driver,
        nbytes=nbytes, impl=impl, metric=metric, value=value,
        unit="B/s" if metric == "bandwidth" else "s",
    )  # fmt: skip


def measure(ranks: Ranks, perftest: Perftest) -> Iterator[Row]:
    """One round over everything."""
    for nbytes, times in SIZES.items():
        theirs = perftest.bandwidth(nbytes, times)
        yield row("write", "cpp", nbytes, "perftest", "bandwidth", theirs)
        for driver in DRIVERS:
            seconds = max(ranks.ask(Order("write", driver, nbytes, times)))
            yield row("write", driver, nbytes, "zerohop", "bandwidth", nbytes * times / seconds)
    for metric, value in perftest.latency(LATENCY_NBYTES, PING_PONGS).items():
        yield row("write_latency", "cpp", LATENCY_NBYTES, "perftest", metric, value)
    for test in ("write_latency", "latency"):
        for driver in DRIVERS:
            samples = ranks.ask(Order(test, driver, LATENCY_NBYTES, PING_PONGS))[0]
            for metric, value in percentiles(samples).items():
                yield row(test, driver, LATENCY_NBYTES, "zerohop", metric, value)
    warm = ranks.ask(Order("register_again", "python", 0, 1))[0]
    yield row("warm_register", "python", 0, "zerohop", "per_call", warm["per_call"])


def main(target: Path) -> None:
    rows: list[Row] = []
    os.environ["ZEROHOP_SPIN"] = "2"  # seconds: perftest never sleeps
    ranks: Any
    with Ranks(work, 2, DEVICE, max(SIZES)) as ranks:
        perftest = Perftest(verbs.Device(DEVICE))
        for number in range(ROUNDS):
            print(f"in one guest: round {number + 1} of {ROUNDS}", flush=True)
            rows += measure(ranks, perftest)
        ranks.tell(None)
        ranks.results()
    write_json(target, header(SUITE, {"perftest": version()}), medians(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

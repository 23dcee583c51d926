"""What Python adds to C++ on this machine's own clock: over soft0, two processes, no guest."""

from __future__ import annotations

from collections.abc import Iterator

from zerohop.bench.pair import work
from zerohop.bench.plan import MIB, Order
from zerohop.bench.rows import Row, medians
from zerohop.local import Ranks
from zerohop.observe.stats import percentiles

SUITE = "perftest"
DEVICE = "soft0"
NBYTES, PING_PONGS = 8, 2000
ROUNDS = 5


def measure_native() -> list[Row]:
    with Ranks(work, 2, DEVICE, MIB) as ranks:
        rows: list[Row] = []
        for number in range(ROUNDS):
            print(f"on this machine: round {number + 1} of {ROUNDS}", flush=True)
            rows += _round(ranks)
        ranks.tell(None)
        ranks.results()
    return medians(rows)


def _round(ranks: Ranks) -> Iterator[Row]:
    for driver in ("cpp", "python"):
        samples = ranks.ask(Order("latency", driver, NBYTES, PING_PONGS))[0]
        for metric, value in percentiles(samples).items():
            yield _row("native_latency", driver, NBYTES, metric, value)
    warm = ranks.ask(Order("register_again", "python", 0, 1))[0]
    yield _row("native_warm_register", "python", 0, "per_call", warm["per_call"])


def _row(test: str, driver: str, nbytes: int, metric: str, value: float) -> Row:
    return Row(
        suite=SUITE, test=test, route="host", device=DEVICE, memory="host", driver=driver,
        nbytes=nbytes, impl="zerohop", metric=metric, value=value, unit="s",
    )  # fmt: skip

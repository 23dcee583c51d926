"""Inside a guest: zerohop beside perftest on one Soft-RoCE device, in turns. Host side: tests/vm/bench.

Like for like: as many writes under way, each with its completion; one queue pair; the same path MTU; a
latency without notification, whose last byte the other side polls. Ours with one stands beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gid import gid_index
from zerohop import verbs
from zerohop.bench.peer import PeerFailed, free_port, run_pair
from zerohop.bench.plan import KIB, MIB, Order, window
from zerohop.bench.rows import Row, header, medians, write_json
from zerohop.bench.worker import work
from zerohop.local import Ranks
from zerohop.stats import percentiles

DEVICE = "rxe0"
SUITE = "perftest"
SIZES = {64 * KIB: 1000, MIB: 100}  # bytes of a write: writes of one measurement
LATENCY_NBYTES, PING_PONGS = 8, 1000
ROUNDS = 3  # each figure is the median of so many
UNIT = 1 << 20  # perftest's "MB/sec" are 2**20 bytes a second
DRIVERS = ("cpp", "python")


class Perftest:
    def __init__(self, mtu: int) -> None:
        index = str(gid_index(verbs.Device(DEVICE)))
        self._options = ["-d", DEVICE, "-x", index, "-F", "-m", str(mtu)]

    def version(self) -> str:
        text = subprocess.run(
            ["ib_write_bw", "--version"], capture_output=True, text=True, check=False
        ).stdout
        return text.strip().rpartition(" ")[2]

    def run(self, program: str, nbytes: int, times: int, *options: str) -> list[float]:
        """The figures of the one row that its table has."""
        port = free_port()
        line = [program, *self._options, *options]
        line += ["-s", str(nbytes), "-n", str(times), "-p", str(port)]
        text = run_pair(line, [*line, "127.0.0.1"], port)
        for row in text.splitlines():
            if row.split()[:2] == [str(nbytes), str(times)]:
                return [float(word) for word in row.split()[2:]]
        raise PeerFailed(f"{program} printed no figures that can be read: {text[-400:]!r}")

    def bandwidth(self, nbytes: int, times: int) -> float:
        """Its columns: peak, average, messages. -Q: writes to each completion."""
        depth = str(window(nbytes))
        return self.run("ib_write_bw", nbytes, times, "-q", "1", "-t", depth, "-Q", "1")[1] * UNIT

    def latency(self, nbytes: int, times: int) -> dict[str, float]:
        """Its columns: least, most, typical, average, deviation, 99 %, 99.9 %; in us."""
        figures = self.run("ib_write_lat", nbytes, times)
        return {"p50": figures[2] * 1e-6, "mean": figures[3] * 1e-6, "p99": figures[5] * 1e-6}


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
    seconds = ranks.ask("warm register")[0]
    yield row("warm_register", "python", 0, "zerohop", "per_call", seconds)


def main(target: Path) -> None:
    rows: list[Row] = []
    os.environ["ZEROHOP_SPIN"] = "2"  # seconds: perftest never sleeps
    ranks: Any
    with Ranks(work, 2, DEVICE, max(SIZES)) as ranks:
        perftest = Perftest(ranks.ask("facts")[0]["mtu"])
        for number in range(ROUNDS):
            print(f"in one guest: round {number + 1} of {ROUNDS}", flush=True)
            rows += measure(ranks, perftest)
        ranks.tell(None)
        ranks.results()
    write_json(target, header(SUITE, {"perftest": perftest.version()}), medians(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

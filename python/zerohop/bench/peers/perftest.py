"""perftest, of linux-rdma: ib_write_bw, ib_write_lat and the like, two processes on one libibverbs device."""

from __future__ import annotations

from functools import partial

from zerohop import verbs
from zerohop.bench.plan import Found, PeerFailed, first_times, window
from zerohop.bench.programs import (
    Programs,
    free_port,
    lasting,
    printed,
    require_program,
    run_pair,
)

PACKAGE = "perftest"
UNIT = 1 << 20  # its "MB/sec" are 2**20 bytes a second
MOST, LEAST = 20_000, 5  # per run: its tools refuse fewer than 5
SOFT = "soft"  # prefix of the package's own devices
LATENCIES = {  # our test: the program; both count half round trips, or both whole ones
    "ping_pong_latency": "ib_write_lat",
    "read_latency": "ib_read_lat",
    "fetch_add_latency": "ib_atomic_lat",
}
BANDWIDTHS = {  # program and its queue pairs
    "write": ("ib_write_bw", 1),
    "read": ("ib_read_bw", 1),
    "send": ("ib_send_bw", 1),
    "write_4_qp": ("ib_write_bw", 4),
}


class Perftest:
    def __init__(self, device: verbs.Device) -> None:
        self._options = ["-d", device.name, "-x", str(device.gid_index), "-F"]
        self._options += ["-m", str(device.mtu), "-i", str(device.port)]

    def run(self, placement: str, program: str, nbytes: int, times: int, *more: str) -> list[float]:
        """The figures in the single row of its table, after the size and the number."""
        port = free_port()
        line = [require_program(program, PACKAGE), *self._options, *more]
        line += ["-n", str(times), "-p", str(port)]
        if program != "ib_atomic_lat":  # its size is always 8
            line += ["-s", str(nbytes)]
        said = run_pair(line, [*line, "127.0.0.1"], port, placement)
        return parse(said, program, nbytes, times)

    def latency(self, program: str, nbytes: int, seconds: float, placement: str) -> Found:
        """Its columns: least, most, typical, average, deviation, 99 %, 99.9 %; in us."""

        def run(times: int) -> tuple[float, Found]:
            figures = self.run(placement, program, nbytes, times)
            p50, mean, p99 = (figures[column] * 1e-6 for column in (2, 3, 5))
            return 2 * mean, {"p50": p50, "mean": mean, "p99": p99}

        return lasting(run, 100, MOST, seconds)

    def bandwidth(
        self, program: str, queue_pairs: int, nbytes: int, seconds: float, placement: str
    ) -> Found:
        """Its columns: peak, average, messages. -Q: requests to each completion."""
        options = ["-q", str(queue_pairs), "-t", str(max(1, window(nbytes) // queue_pairs))]
        if program == "ib_send_bw":
            options += ["-r", str(2 * window(nbytes))]

        def run(times: int) -> tuple[float, Found]:
            rate = self.run(placement, program, nbytes, times, *options, "-Q", "1")[1] * UNIT
            return nbytes * queue_pairs / rate, {"bandwidth": rate}

        return lasting(run, max(LEAST, first_times("write", nbytes)), MOST, seconds)


def contender(name: str) -> Programs:
    """The contender on the named device. It reports a reason if that is not a libibverbs device."""
    if name.startswith(SOFT):
        return Programs("perftest", partial(_refuse, name), {})
    runs = Perftest(verbs.Device(name))
    return Programs(
        "perftest",
        lambda: {"perftest": version()},
        {
            **{test: partial(runs.latency, program) for test, program in LATENCIES.items()},
            **{test: partial(runs.bandwidth, *each) for test, each in BANDWIDTHS.items()},
        },
    )


def _refuse(name: str) -> Found:
    raise PeerFailed(f"its programs run on libibverbs devices, and {name} is not one")


def version() -> str:
    return printed("ib_write_bw", "--version", PACKAGE).strip().rpartition(" ")[2]


def parse(text: str, program: str, nbytes: int, times: int) -> list[float]:
    """Finds the row that begins with the size; the number is the total over all queue pairs."""
    for row in text.splitlines():
        words = row.split()
        if len(words) < 4 or words[0] != str(nbytes) or not words[1].isdecimal():
            continue
        if int(words[1]) % times == 0:
            return [float(word) for word in words[2:]]
    raise PeerFailed(f"{program} printed no figures that can be read: {text[-400:]!r}")
